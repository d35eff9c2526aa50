import { setFresh, setLayer } from "../state/actions.js";
import { LIMITS } from "../state/limits.js";
import { createChart, drawChart, linearScale } from "../view/curves.js";
import { node, setAttributes, setText } from "../view/dom.js";
import { numberField } from "./fields.js";

const RIGHT_WORDS =
  "Right means: the token with the most attention is the one with the best score. A tie for the best score counts as right, equal attention on all tokens does not.";

/** Generalization: the share of fresh inputs that the layer selects right, beside the training ones, along the run. */
export function createFreshPanel({ store }) {
  const fresh = node("span", { class: "share" });
  const error = node("span", { class: "rest" });
  const training = node("p", { class: "efficiency" });
  const chart = createChart("Share selected right: fresh, and training dashed");
  const kind = node("p", { class: "hint" });
  const spread = numberField({
    label: "spread of fresh inputs",
    low: 0,
    high: LIMITS.coordinate,
    step: 0.05,
    onValue: (value) => store.look((state) => setFresh(state, { spread: value }), "fresh"),
  });
  const spreadLabel = node("label", { class: "check" }, "spread", spread.input);
  const again = node(
    "button",
    {
      type: "button",
      title: "other fresh inputs of the same kind",
      onclick: () => store.look((state) => setFresh(state, { seed: state.view.fresh.seed + 1 }), "fresh"),
    },
    "Draw others",
  );
  const box = node("input", {
    type: "checkbox",
    onchange: () => store.look((state) => setLayer(state, "fresh", box.checked), "layer"),
  });
  const element = node(
    "div",
    { class: "fresh" },
    node("div", { class: "cosine-line" }, node("span", { class: "cosine-name" }, "fresh inputs right"), fresh, error),
    training,
    chart.element,
    kind,
    node("div", { class: "fresh-controls" }, spreadLabel, again, node("label", { class: "check" }, box, "draw some")),
    node("p", { class: "hint" }, RIGHT_WORDS),
  );

  function update({ model, theme }) {
    const { count, right, trainingRight, drawn, along } = model.fresh;
    const share = right / count;
    const inputs = model.problem.inputs.length;
    setText(fresh, `${(100 * share).toFixed(1)} %`);
    setText(error, `± ${(100 * Math.sqrt((share * (1 - share)) / count)).toFixed(1)}, ${right} of ${count}`);
    setText(training, `training inputs right: ${trainingRight} of ${inputs}`);
    setText(kind, kindText(model, drawn));
    spread.show(model.state.view.fresh.spread);
    setAttributes(spreadLabel, { hidden: drawn });
    box.checked = model.state.view.layers.fresh;
    if (along === null) return;
    const { steps } = model.run;
    drawChart(chart, {
      last: steps[steps.length - 1],
      now: steps[model.index],
      theme,
      upAt: linearScale(0, 1),
      marks: [
        { value: 0, text: "0" },
        { value: 1, text: "1" },
      ],
      curves: [
        { key: "training", colour: theme.quiet, dash: "4 3", side: true, steps, values: along.training },
        { key: "fresh", colour: theme.ink, steps, values: along.fresh },
      ],
    });
    setText(chart.number, "");
  }

  return { element, update };
}

function kindText(model, drawn) {
  const scores = model.typed ? " Typed scores stay with their tokens." : "";
  const head = model.headTrained ? " Scores are those of the head as trained so far." : "";
  if (!drawn)
    return `Each fresh input is a training input with every token${model.problem.kind === "matrix" ? " and the query" : ""} moved by normal noise of this standard deviation.${scores}${head}`;
  const told =
    model.state.random.labels === "told"
      ? "The query tells the label."
      : "Nothing that attention sees tells the label, so no training can be right always.";
  return `Fresh inputs are drawn like the training ones. ${told}${head}`;
}
