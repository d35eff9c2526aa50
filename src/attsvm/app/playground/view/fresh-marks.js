import { inputColour } from "./colours.js";
import { setAttributes, shape, syncChildren } from "./dom.js";

/** Fresh inputs: a dot for each token, a larger one where attention is right, a cross where it is not. */
export function createFreshMarks() {
  const element = shape("g", { "aria-hidden": "true" });

  function update({ model, plane, theme, layers }) {
    const groups = new Map();
    for (const mark of layers.fresh ? model.fresh.marks : []) {
      if (!groups.has(mark.input)) groups.set(mark.input, { key: String(mark.input), input: mark.input, marks: [] });
      groups.get(mark.input).marks.push(mark);
    }
    syncChildren(element, [...groups.values()], ({ key }) => key, createMarks, (group, { input, marks }) => {
      const [dots, right, wrong] = group.children;
      const colour = input === null ? theme.quiet : inputColour(theme, input);
      const place = (x) => plane.toScreen(x).map((entry) => entry.toFixed(1));
      const dot = (x) => `M${place(x).join(" ")}h0`;
      const chosen = (good) => marks.filter((mark) => mark.right === good).map(({ tokens, selected }) => tokens[selected]);
      const cross = (x) => {
        const [left, top] = place(x);
        return `M${left} ${top}m-3.5 -3.5l7 7m-7 0l7 -7`;
      };
      setAttributes(dots, { d: marks.flatMap(({ tokens }) => tokens.map(dot)).join(""), stroke: colour });
      setAttributes(right, { d: chosen(true).map(dot).join(""), stroke: colour });
      setAttributes(wrong, { d: chosen(false).map(cross).join(""), stroke: theme.warning });
    });
  }

  return { element, update };
}

function createMarks() {
  const round = { fill: "none", "stroke-linecap": "round" };
  return shape(
    "g",
    {},
    shape("path", { ...round, "stroke-width": 2.6, "stroke-opacity": 0.4 }),
    shape("path", { ...round, "stroke-width": 6, "stroke-opacity": 0.6 }),
    shape("path", { ...round, "stroke-width": 1.6, "stroke-opacity": 0.9 }),
  );
}
