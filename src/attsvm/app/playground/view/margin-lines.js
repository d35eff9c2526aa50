import { imageOf } from "../maths/model.js";
import { LINE_NAMES, inputPlace } from "../words.js";
import { inputColour } from "./colours.js";
import { setAttributes, shape, syncChildren } from "./dom.js";

/** Ends of the part of { x : w . x = offset } inside a disc; null if it misses. */
function chord(w, offset, radius) {
  const size = w[0] * w[0] + w[1] * w[1];
  if (!(size > 0)) return null;
  const foot = [(w[0] * offset) / size, (w[1] * offset) / size];
  const room = radius * radius - foot[0] * foot[0] - foot[1] * foot[1];
  if (!(room > 0)) return null;
  const reach = Math.sqrt(room / size);
  return [
    [foot[0] - w[1] * reach, foot[1] + w[0] * reach],
    [foot[0] + w[1] * reach, foot[1] - w[0] * reach],
  ];
}

/**
 * For each input with a positive margin: the line half way between its selected token and the nearest other one in
 * direction w = W z, and the two edges of the margin.
 */
function marginLines(problem, selected, weights) {
  const lines = [];
  problem.inputs.forEach((input, i) => {
    const w = imageOf(weights, input.query);
    const along = (token) => token.x[0] * w[0] + token.x[1] * w[1];
    const top = along(input.tokens[selected[i]]);
    let margin = Infinity;
    input.tokens.forEach((token, t) => {
      if (t !== selected[i]) margin = Math.min(margin, top - along(token));
    });
    if (Number.isFinite(margin) && margin > 1e-9) lines.push({ input: i, w, top, margin });
  });
  return lines;
}

/** Separating lines and margins, inside the disc of true scale. */
export function createLines() {
  const element = shape("g", { "aria-hidden": "true" });

  function update({ model, plane, theme, layers }) {
    const shown =
      layers.lines && model.prediction?.weights
        ? marginLines(model.problem, model.shown, model.prediction.weights)
        : [];
    syncChildren(
      element,
      shown,
      (line) => String(line.input),
      createLine,
      (group, line) => {
        setAttributes(group, { "data-name": LINE_NAMES.margin(inputPlace(model.problem, line.input)) });
        updateLine(group, line, plane, theme);
      },
    );
  }

  return { element, update };
}

function createLine() {
  const band = shape("polygon", { "clip-path": "url(#inside-disc)", "pointer-events": "none" });
  return shape("g", {}, band, shape("line", {}), shape("line", {}), shape("line", {}));
}

/** Corners of the band between two lines, in pixels at true scale; it reaches beyond the disc, which cuts it. */
function bandCorners(line, plane) {
  const size = Math.hypot(line.w[0], line.w[1]);
  const unit = line.w.map((entry) => entry / size);
  const reach = 2 * plane.radius;
  return [
    [line.top, -1],
    [line.top, 1],
    [line.top - line.margin, 1],
    [line.top - line.margin, -1],
  ].map(([offset, side]) => [
    plane.centre[0] + plane.scale * ((unit[0] * offset) / size - side * reach * unit[1]),
    plane.centre[1] - plane.scale * ((unit[1] * offset) / size + side * reach * unit[0]),
  ]);
}

function updateLine(group, line, plane, theme) {
  const [band, middle, near, far] = group.children;
  const colour = inputColour(theme, line.input);
  const ends = [line.top, line.top - line.margin / 2, line.top - line.margin].map((offset) =>
    chord(line.w, offset, plane.radius),
  );
  const draw = (element, pair, look) => {
    if (pair === null) return setAttributes(element, { display: "none" });
    const [[x1, y1], [x2, y2]] = pair.map(plane.toScreen);
    return setAttributes(element, { display: null, x1, y1, x2, y2, stroke: colour, ...look });
  };
  draw(middle, ends[1], { "stroke-width": 1.6, "stroke-opacity": 0.85 });
  draw(near, ends[0], { "stroke-width": 1, "stroke-opacity": 0.55, "stroke-dasharray": "2 4" });
  draw(far, ends[2], { "stroke-width": 1, "stroke-opacity": 0.55, "stroke-dasharray": "2 4" });
  setAttributes(band, {
    points: bandCorners(line, plane)
      .map((each) => each.map((entry) => entry.toFixed(1)).join(","))
      .join(" "),
    fill: colour,
    "fill-opacity": 0.055,
  });
}

/** Where no direction separates: lines from the selected tokens to those that pull against one another. */
export function createConflicts() {
  const element = shape("g", { "aria-hidden": "true" });

  function update({ model, plane, theme }) {
    const pairs = model.conflicts;
    syncChildren(
      element,
      pairs,
      (pair) => `${pair.input}-${pair.token}`,
      () =>
        shape("line", {
          "stroke-width": 2,
          "stroke-dasharray": "6 4",
          "stroke-linecap": "round",
          "data-name": LINE_NAMES.pull,
        }),
      (line, pair) => {
        const { tokens } = model.problem.inputs[pair.input];
        const [x1, y1] = plane.toScreen(tokens[model.shown[pair.input]].x);
        const [x2, y2] = plane.toScreen(tokens[pair.token].x);
        setAttributes(line, { x1, y1, x2, y2, stroke: theme.warning });
      },
    );
  }

  return { element, update };
}
