import { setLayer } from "../state/actions.js";
import { node } from "../view/dom.js";

const LAYER_WORDS = [
  ["paths", "paths of training"],
  ["rays", "max-margin rays"],
  ["lines", "margins"],
  ["basin", "basins of starts"],
  ["fresh", "fresh inputs"],
];

/** What to draw. */
export function createLayers({ store }) {
  const boxes = LAYER_WORDS.map(([name, words]) => {
    const box = node("input", {
      type: "checkbox",
      "data-layer": name,
      onchange: () => store.look((state) => setLayer(state, name, box.checked), "layer"),
    });
    return { name, box, label: node("label", { class: "check" }, box, words) };
  });
  const element = node(
    "div",
    { class: "layers", role: "group", "aria-label": "what to draw" },
    boxes.map(({ label }) => label),
  );

  function update({ model }) {
    for (const { name, box } of boxes) box.checked = model.state.view.layers[name];
  }

  return { element, update };
}
