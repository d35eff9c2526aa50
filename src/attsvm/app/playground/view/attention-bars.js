import { inputColour, inputInk } from "./colours.js";
import { node, setAttributes, setText, syncChildren } from "./dom.js";
import { percent } from "../format.js";

/** Attention of every input at the present step, one bar for each token. */
export function createBars() {
  const element = node("div", { class: "bars" });

  function update({ model, theme }) {
    const groups = model.problem.inputs.map((input, i) => ({ i, input }));
    syncChildren(
      element,
      groups,
      ({ i }) => String(i),
      createGroup,
      (group, item) => updateGroup(group, item, model, theme),
    );
  }

  return { element, update };
}

function createGroup({ i }) {
  return node(
    "div",
    { class: "bar-group", role: "group", "aria-label": `attention of input ${i}` },
    node("div", { class: "bar-title" }),
    node("div", { class: "bar-rows" }),
  );
}

function updateGroup(group, { i, input }, model, theme) {
  const [title, rows] = group.children;
  setText(title, `Input ${i}`);
  const colour = inputColour(theme, i);
  title.style.setProperty("color", inputInk(theme, i));
  const items = input.tokens.map((_, t) => t);
  syncChildren(rows, items, String, createBar, (row, t) => {
    const share = model.attention[i][t];
    const [name, track, value] = row.children;
    setText(name, `${t}${model.bestSet[i].has(t) ? "★" : ""}`);
    setText(value, input.tokens.length === 1 ? "100 %" : percent(share));
    const bar = track.firstChild;
    bar.style.setProperty("transform", `scaleX(${Math.min(1, Math.max(0, share)).toFixed(4)})`);
    bar.style.setProperty("background", colour);
    setAttributes(row, { class: model.shown[i] === t ? "bar chosen" : "bar" });
  });
}

function createBar() {
  return node(
    "div",
    { class: "bar" },
    node("span", { class: "bar-name" }),
    node("span", { class: "bar-track" }, node("span", { class: "bar-fill" })),
    node("span", { class: "bar-value" }),
  );
}
