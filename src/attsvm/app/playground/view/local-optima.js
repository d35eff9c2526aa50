import { destinationColour } from "./basin-image.js";
import { node, setAttributes, setText, syncChildren } from "./dom.js";
import { grouped, significant } from "../format.js";
import { noOptimaReason, selectionName, selectionShort } from "../words.js";

/** The locally optimal selections; a click shows the ray and the basin of one. */
export function createOptimaList({ onShow, onBasin }) {
  const status = node("p", { class: "hint" });
  const list = node("ul", { class: "optima" });
  const box = node("input", { type: "checkbox", onchange: () => onBasin(box.checked) });
  const toggle = node("label", { class: "check" }, box, "colour starting points by where descent ends");
  const progress = node("progress", { max: 1, "aria-label": "basin computed so far" });
  const legend = node("p", { class: "hint" });
  const element = node("div", {}, status, list, toggle, progress, legend);

  function update({ model, theme }) {
    const { optima, basin } = model;
    const basinOn = model.state.view.layers.basin;
    box.checked = basinOn;
    const selections = optima?.selections ?? [];
    setText(status, statusText(optima, model));
    setAttributes(list, { "aria-busy": optima === null });
    syncChildren(
      list,
      selections,
      ({ selected }) => selected.join("-"),
      createRow,
      (row, item) => updateRow(row, item, model, theme),
    );
    setAttributes(progress, { hidden: !basinOn || basin === null || basin.done >= 1 });
    progress.value = basin?.done ?? 0;
    setText(legend, basin === null ? "" : basinText(model));
  }

  function createRow(item) {
    const button = node(
      "button",
      { type: "button", class: "optimum", onclick: () => onShow(item.selected) },
      node("span", { class: "swatch" }),
      node("span", { class: "tokens" }),
      node("span", { class: "kind" }),
      node("span", { class: "margin" }),
    );
    return node("li", {}, button);
  }

  function updateRow(row, item, model, theme) {
    const button = row.firstChild;
    const [swatch, tokens, kind, margin] = button.children;
    const shown = item.selected.every((t, i) => t === model.shown[i]);
    const reached = item.selected.every((t, i) => t === model.selected[i]);
    setAttributes(button, {
      "aria-pressed": String(shown),
      "aria-label": `show ${selectionName(model.problem, item.selected)}`,
    });
    swatch.style.setProperty("background", destinationColour(theme, destinationIndex(model, item.selected)));
    setText(tokens, item.selected.length === 1 ? `token ${item.selected[0]}` : selectionShort(item.selected));
    setText(kind, `${item.isGlobal ? "optimal ★" : "locally optimal"}${reached ? " · reached" : ""}`);
    setText(margin, `margin ${significant(1 / item.norm)}`);
  }

  return { element, update };
}

/** The place of a selection among the destinations of the basin, or in the list; -1 where it is in neither. */
function destinationIndex(model, selected) {
  const key = selected.join("-");
  return model.destinations.indexOf(key);
}

function statusText(optima, model) {
  if (model.headTrained)
    return "The head is trained, so scores change on the way: which selections are locally optimal is not fixed.";
  if (optima === null) return "Looking for them …";
  if (optima.selections.length === 0)
    return optima.complete
      ? noOptimaReason(model)
      : `None among the first ${optima.tried} selections.`;
  const count = optima.selections.length;
  const searched = optima.complete ? "" : ` among the first ${optima.tried} selections`;
  return `${count} ${count === 1 ? "selection is" : "selections are"} locally optimal${searched}${count > 1 ? "; click one to see its ray" : ""}.`;
}

function basinText(model) {
  const split = model.settings.trained === "KQ" ? ", split evenly into K and Q" : "";
  const where =
    model.problem.kind === "prompt"
      ? "Each point of the disc is a p(0)."
      : `Each point w of the disc is a start W(0) = w z₀ᵀ / |z₀|²${split}.`;
  const { steps } = model.basin;
  const cut = steps < model.settings.steps ? ` after ${grouped(steps)} steps` : "";
  return `${where} Its colour says where descent from it ends${cut}; grey: attention still spread.`;
}
