import { inputColour, markerPath, mixed } from "./colours.js";
import { node, setText, shape, syncChildren } from "./dom.js";

/** What the marks of the picture mean, with a small sample of each; only of marks that are there. */
export function createLegend({ open }) {
  const list = node("ul", {});
  const element = node("details", { class: "legend", open }, node("summary", {}, "Legend"), list);

  function update({ model, theme }) {
    syncChildren(
      list,
      entriesOf(model),
      (entry) => entry.key,
      ({ key }) => node("li", { "data-mark": key }, shape("svg", { viewBox: "0 0 34 18", width: 34, height: 18, "aria-hidden": "true" }), node("span", {})),
      (row, entry) => {
        const [sample, words] = row.children;
        setText(words, entry.words);
        if (sample.dataset.theme === theme.name) return;
        sample.dataset.theme = theme.name;
        sample.replaceChildren(...entry.draw(theme));
      },
    );
  }

  return { element, update };
}

const token = (theme, i, x, r, strength = 1) =>
  shape("path", {
    d: markerPath(i, r),
    transform: `translate(${x} 9)`,
    fill: mixed(inputColour(theme, i), theme.disc, strength),
    stroke: inputColour(theme, i),
    "stroke-width": 1.4,
  });

const ENTRIES = {
  token: {
    words: "token, a piece of the input",
    draw: (theme) => [token(theme, 0, 17, 6)],
  },
  tokens: {
    words: "tokens; shape: their input",
    draw: (theme) => [token(theme, 0, 10, 5), token(theme, 1, 25, 4.5)],
  },
  size: {
    words: "size: its attention",
    draw: (theme) => [token(theme, 0, 8, 2.5), token(theme, 0, 23, 7.5)],
  },
  score: {
    words: "full colour: high score",
    draw: (theme) => [token(theme, 0, 9, 5.5, 0.1), token(theme, 0, 25, 5.5)],
  },
  selected: {
    words: "halo: selected in the end",
    draw: (theme) => [
      shape("circle", { cx: 17, cy: 9, r: 9, fill: inputColour(theme, 0), "fill-opacity": 0.18 }),
      token(theme, 0, 17, 4.5),
    ],
  },
  support: {
    words: "outline: support token",
    draw: (theme) => [
      shape("circle", { cx: 17, cy: 9, r: 8, fill: "none", stroke: theme.ink, "stroke-width": 1.8 }),
      token(theme, 0, 17, 4, 0.4),
    ],
  },
  query: {
    words: "query z, asks for a token",
    draw: (theme) => [
      shape("path", { d: "M17 2L24 9L17 16L10 9Z", fill: theme.disc, stroke: inputColour(theme, 0), "stroke-width": 1.8 }),
    ],
  },
  head: {
    words: "head v: gives the scores",
    draw: (theme) => [
      shape("line", { x1: 5, y1: 9, x2: 24, y2: 9, stroke: theme.head, "stroke-width": 1.8 }),
      shape("path", { d: "M30 9L18 3.5L21 9L18 14.5Z", fill: theme.head }),
    ],
  },
  start: {
    words: "start of training",
    draw: (theme) => [
      shape("circle", { cx: 17, cy: 9, r: 7, fill: "none", stroke: theme.ink, "stroke-width": 1.8, "stroke-dasharray": "3.5 2.5" }),
    ],
  },
  ring: {
    words: "ring: ten times as far",
    draw: (theme) => [
      shape("circle", { cx: 17, cy: 30, r: 26, fill: "none", stroke: theme.quiet, "stroke-dasharray": "1 4", "stroke-linecap": "round" }),
    ],
  },
};

function entriesOf(model) {
  const several = model.problem.inputs.length > 1;
  const held = model.support.some((each) => each.size > 0);
  const there = [
    several ? "tokens" : "token",
    "size",
    "score",
    "selected",
    held && "support",
    model.problem.kind === "matrix" && "query",
    !model.typed && "head",
    "start",
    "ring",
  ];
  return there.filter(Boolean).map((key) => ({ key, ...ENTRIES[key] }));
}
