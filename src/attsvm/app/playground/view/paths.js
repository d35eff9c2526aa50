import { imageOf } from "../maths/model.js";
import { LINE_NAMES, inputPlace } from "../words.js";
import { inputColour } from "./colours.js";
import { setAttributes, shape, syncChildren } from "./dom.js";
import { lowered } from "../format.js";

/** One entry for each path or ray of some weights: a single one for p, one for each input for W. */
export function imagesByInput(problem, weights) {
  if (problem.kind === "prompt") return [{ input: null, at: weights }];
  return problem.inputs.map((input, i) => ({ input: i, at: imageOf(weights, input.query) }));
}

function pathColour(theme, input) {
  return input === null ? theme.ink : inputColour(theme, input);
}

function pathData(plane, points) {
  let data = "";
  let last = null;
  for (const each of points) {
    const [x, y] = plane.toScreen(each);
    if (last !== null && Math.abs(x - last[0]) + Math.abs(y - last[1]) < 0.4) continue;
    data += `${data === "" ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    last = [x, y];
  }
  return data;
}

/** Rays of max-margin solutions: broad, pale bands under the paths that come to follow them. */
export function createRays() {
  const others = shape("g", {});
  const main = shape("g", {});
  const element = shape("g", { "aria-hidden": "true" }, others, main);

  function update({ model, plane, theme, layers }) {
    const { problem } = model;
    const rays = [];
    if (layers.rays && model.prediction?.weights) {
      for (const ray of imagesByInput(problem, model.prediction.weights))
        rays.push({ ...ray, key: `m${ray.input}`, dashed: false });
    }
    const side = [];
    if (layers.rays) {
      if (model.headTrained && model.prediction?.head)
        rays.push({ input: null, at: model.prediction.head, key: "head", head: true });
      model.companions.forEach((companion, k) => {
        if (!companion.ownRay || !companion.prediction?.weights) return;
        for (const ray of imagesByInput(companion.problem, companion.prediction.weights))
          side.push({ ...ray, key: `c${k}-${ray.input}`, dashed: true });
      });
      for (const [k, other] of model.otherRays.entries()) {
        for (const ray of imagesByInput(problem, other)) side.push({ ...ray, key: `o${k}-${ray.input}`, thin: true });
      }
    }
    const draw = (element, ray) => updateRay(element, ray, plane, theme, problem);
    for (const ray of rays) ray.name = ray.head ? LINE_NAMES.headRay : nameOfLine(LINE_NAMES.ray, problem, ray.input);
    for (const ray of side) ray.name = ray.thin ? LINE_NAMES.otherRay : LINE_NAMES.sideRay;
    syncChildren(
      others,
      side.filter((ray) => plane.rayEnd(ray.at)),
      (ray) => ray.key,
      createRay,
      draw,
    );
    syncChildren(
      main,
      rays.filter((ray) => plane.rayEnd(ray.at)),
      (ray) => ray.key,
      createRay,
      draw,
    );
  }

  return { element, update };
}

/** A name made of the image that a line is of, p or W z, and of its input. */
function nameOfLine(words, problem, input) {
  return words(input === null ? "p" : `W z${lowered(input)}`, input === null ? "" : inputPlace(problem, input));
}

function createRay() {
  const label = shape("text", { "font-size": 12.5, "font-style": "italic", "text-anchor": "middle" });
  return shape("g", {}, shape("line", { "stroke-linecap": "round" }), label);
}

function updateRay(element, ray, plane, theme, problem) {
  const [line, label] = element.children;
  const [x, y] = plane.rayEnd(ray.at);
  setAttributes(element, { "data-name": ray.name });
  const colour = ray.head ? theme.quiet : pathColour(theme, ray.input);
  setAttributes(line, {
    x1: plane.centre[0],
    y1: plane.centre[1],
    x2: x,
    y2: y,
    stroke: colour,
    "stroke-width": ray.thin ? 1.2 : ray.dashed || ray.head ? 5 : 9,
    "stroke-opacity": ray.thin ? 0.45 : ray.dashed ? 0.28 : 0.22,
    "stroke-dasharray": ray.thin ? "1 5" : ray.dashed ? "2 11" : null,
  });
  if (ray.thin || ray.dashed) {
    setAttributes(label, { display: "none" });
    return;
  }
  const [cx, cy] = plane.centre;
  const length = Math.hypot(x - cx, y - cy);
  const side = 22;
  const back = 20;
  const unit = [(x - cx) / length, (y - cy) / length];
  const place = [x - back * unit[0] - side * unit[1], y - back * unit[1] + side * unit[0] + 4];
  setAttributes(label, {
    display: null,
    fill: colour,
    stroke: theme.paper,
    "stroke-width": 4,
    "paint-order": "stroke",
    x: Math.min(plane.width - 30, Math.max(30, place[0])),
    y: Math.min(plane.height - 8, Math.max(16, place[1])),
  });
  const name = ray.head ? "v" : problem.kind === "prompt" ? "p" : "W";
  const rest = ray.input === null ? "" : ` z${lowered(ray.input)}`;
  if (label.dataset.text !== name + rest) {
    label.dataset.text = name + rest;
    label.replaceChildren(name, shape("tspan", { dy: 3, "font-size": 9 }, "mm"), shape("tspan", { dy: -3 }, rest));
  }
}

/** Paths of descent: the whole run faint, what has been walked so far full, and where it stands now. */
export function createPaths() {
  const companions = shape("g", {});
  const main = shape("g", {});
  const head = shape("g", {});
  const element = shape("g", { "aria-hidden": "true" }, companions, head, main);

  function update({ model, plane, theme, layers }) {
    const side = [];
    const own = [];
    const vectors = [];
    if (layers.paths) {
      model.companions.forEach((companion, k) => {
        if (companion.run === null) return;
        for (const path of pathsOfRun(companion.problem, companion.run))
          side.push({
            ...path,
            key: `c${k}-${path.input}`,
            companion: true,
            name: LINE_NAMES.companion(companion.name),
            dash: companion.dash,
            until: companion.index,
          });
      });
      for (const path of pathsOfRun(model.problem, model.run))
        own.push({
          ...path,
          key: `m${path.input}`,
          until: model.index,
          name: nameOfLine(LINE_NAMES.path, model.problem, path.input),
        });
      if (model.headTrained)
        vectors.push({
          key: "head",
          input: null,
          head: true,
          name: LINE_NAMES.head,
          points: model.run.parameters.map((each) => each.head),
          until: model.index,
        });
    }
    const draw = (element, path) => updatePath(element, path, plane, theme);
    syncChildren(companions, side, (path) => path.key, createPath, draw);
    syncChildren(head, vectors, (path) => path.key, createPath, draw);
    syncChildren(main, own, (path) => path.key, createPath, draw);
  }

  return { element, update };
}

function pathsOfRun(problem, run) {
  if (problem.kind === "prompt") return [{ input: null, points: run.weights }];
  return problem.inputs.map((input, i) => ({
    input: i,
    points: run.weights.map((weights) => imageOf(weights, input.query)),
  }));
}

function createPath() {
  const line = { fill: "none", "stroke-linejoin": "round", "stroke-linecap": "round" };
  return shape("g", {}, shape("path", line), shape("path", line), shape("circle", {}));
}

function updatePath(element, path, plane, theme) {
  const [whole, walked, now] = element.children;
  setAttributes(element, { "data-name": path.name });
  const colour = path.head ? theme.head : pathColour(theme, path.input);
  const width = path.companion || path.head ? 1.5 : 2.6;
  const dash = path.head ? "1.5 4" : path.companion ? (path.dash ?? null) : null;
  const strength = path.companion ? 0.8 : 1;
  setAttributes(whole, {
    d: pathData(plane, path.points),
    stroke: colour,
    "stroke-width": width,
    "stroke-opacity": 0.28,
    "stroke-dasharray": dash,
  });
  setAttributes(walked, {
    d: pathData(plane, path.points.slice(0, path.until + 1)),
    stroke: colour,
    "stroke-width": width,
    "stroke-opacity": strength,
    "stroke-dasharray": dash,
  });
  const [cx, cy] = plane.toScreen(path.points[path.until]);
  setAttributes(now, {
    cx,
    cy,
    r: path.companion || path.head ? 2.6 : 4.6,
    fill: colour,
    stroke: theme.paper,
    "stroke-width": 1.5,
  });
}
