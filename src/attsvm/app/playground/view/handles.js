import { inputColour } from "./colours.js";
import { setAttributes, setText, shape, syncChildren } from "./dom.js";
import { lowered, point } from "../format.js";

/** What can be dragged besides tokens: queries, the head, the starting points. */
export function handleItems(model) {
  const { problem, settings } = model;
  const items = [];
  if (problem.kind === "matrix") {
    problem.inputs.forEach((input, i) => {
      items.push({
        key: `query-${i}`,
        kind: "query",
        input: i,
        at: input.query,
        name: `z${lowered(i)}`,
        words: `query of input ${i} at ${point(input.query)}`,
      });
    });
  }
  if (!model.typed) {
    const at = model.headTrained ? settings.startHead : problem.head;
    const name = model.headTrained ? "v(0)" : "v";
    items.push({
      key: "head",
      kind: "head",
      input: null,
      at,
      name,
      words: `${model.headTrained ? "starting point of the head" : "head"} v at ${point(at)}`,
    });
  }
  model.companions.forEach((companion, k) => {
    if (!companion.ownStart) return;
    const at = companion.start;
    items.push({
      key: `companion-${k}`,
      kind: "companion",
      input: null,
      at,
      name: "",
      words: `start of the companion run ${companion.name} at ${point(at)}`,
    });
  });
  const starts = problem.kind === "prompt" ? [null] : problem.inputs.map((_, i) => i).reverse();
  for (const i of starts) {
    const at = model.starts[i ?? 0];
    const name = i === null ? "p(0)" : `W(0) z${lowered(i)}`;
    items.push({
      key: `start-${i ?? 0}`,
      kind: "start",
      input: i,
      at,
      name,
      words: `start of the run, ${name} at ${point(at)}`,
    });
  }
  return items;
}

/** The key itself while its item is drawn; otherwise that of the token nearest in the list. */
export function presentItem(model, key) {
  const [kind, i, t] = key.split("-");
  if (kind !== "token") return handleItems(model).some((item) => item.key === key) ? key : "token-0-0";
  const count = model.problem.inputs[i]?.tokens.length ?? 0;
  return count === 0 ? "token-0-0" : `token-${i}-${Math.min(Number(t), count - 1)}`;
}

export function createHandles() {
  const element = shape("g", {});

  function update({ model, plane, theme, focus }) {
    syncChildren(
      element,
      handleItems(model),
      (item) => item.key,
      createHandle,
      (group, item) => {
        updateHandle(group, item, plane, theme, focus);
      },
    );
  }

  return { element, update };
}

function createHandle(item) {
  const attributes = {
    class: `item ${item.kind}`,
    tabindex: 0,
    role: "button",
    "data-item": item.key,
    "aria-roledescription": "point that can be moved",
  };
  const label = shape("text", { "font-size": 11.5, "font-style": "italic", "text-anchor": "middle" });
  const stem = shape("line", {});
  if (item.kind === "query")
    return shape(
      "g",
      attributes,
      stem,
      shape("path", { d: "M0 -8L8 0L0 8L-8 0Z", "stroke-width": 1.8 }),
      label,
      shape("circle", { r: 15, fill: "transparent", class: "reach" }),
    );
  if (item.kind === "head")
    return shape(
      "g",
      attributes,
      stem,
      shape("path", { d: "M10 0L-6 -6.5L-2.5 0L-6 6.5Z", "stroke-width": 1 }),
      label,
      shape("circle", { r: 15, fill: "transparent", class: "reach" }),
    );
  const size = item.kind === "start" ? 12 : 6;
  // Only the rim of a start takes the pointer: a token may lie inside.
  const reach = {
    r: size,
    fill: "none",
    stroke: "transparent",
    "stroke-width": 14,
    "pointer-events": "stroke",
    class: "reach",
  };
  return shape(
    "g",
    attributes,
    stem,
    shape("path", { d: `M${-size} 0A${size} ${size} 0 1 0 ${size} 0A${size} ${size} 0 1 0 ${-size} 0Z` }),
    label,
    shape("circle", reach),
  );
}

function updateHandle(group, item, plane, theme, focus) {
  const [stem, glyph, label] = group.children;
  const [x, y] = plane.toScreen(item.at);
  const [cx, cy] = plane.centre;
  const colour = item.input === null ? (item.kind === "head" ? theme.head : theme.ink) : inputColour(theme, item.input);
  setAttributes(group, { transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`, "aria-label": item.words });
  const angle = Math.atan2(cy - y, x - cx);
  const outward =
    Math.hypot(x - cx, y - cy) > 2 ? angle : item.input === null ? (3 * Math.PI) / 4 : Math.PI / 4 + item.input;
  if (item.kind === "query" || item.kind === "head") {
    const dashed = item.kind === "query";
    setAttributes(stem, {
      x1: cx - x,
      y1: cy - y,
      x2: 0,
      y2: 0,
      stroke: colour,
      "stroke-width": dashed ? 1 : 1.8,
      "stroke-dasharray": dashed ? "3 4" : null,
      "stroke-opacity": dashed ? 0.6 : 0.9,
    });
    setAttributes(
      glyph,
      dashed
        ? { fill: theme.disc, stroke: colour }
        : { fill: colour, stroke: theme.disc, transform: `rotate(${((-angle * 180) / Math.PI).toFixed(1)})` },
    );
  } else {
    const main = item.kind === "start";
    setAttributes(glyph, {
      fill: "none",
      stroke: colour,
      "stroke-width": main ? 2 : 1.4,
      "stroke-dasharray": main ? "4 3" : null,
      "stroke-opacity": main ? 1 : 0.7,
    });
  }
  const away = item.kind === "start" ? 24 : 19;
  setAttributes(label, {
    x: away * Math.cos(outward),
    y: 4 - away * Math.sin(outward),
    fill: colour,
    stroke: theme.disc,
    "stroke-width": 3,
    "paint-order": "stroke",
  });
  // Starts at the origin would write over one another and over the axes.
  const crowded = item.kind === "start" && Math.hypot(x - cx, y - cy) < 16 && focus !== item.key;
  setText(label, crowded ? "" : item.name);
}
