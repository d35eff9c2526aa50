import { RANDOM_LABELS, LIMITS } from "../state/limits.js";
import { node, setAttributes } from "../view/dom.js";
import { choiceButtons, labelled, numberField } from "./fields.js";

/** Random data: how many inputs and tokens, whether the query tells the label, and the seed. */
export function createRandomData({ onDraw }) {
  let plan = { seed: 1, inputs: 3, tokens: 4, labels: "told" };
  const set = (name) => (value) => draw({ [name]: value });
  const field = (label, low, high, name) => numberField({ label, low, high, whole: true, step: 1, onValue: set(name) });
  const inputs = field("number of random inputs", 1, LIMITS.inputs, "inputs");
  const tokens = field("tokens of each random input", 2, LIMITS.tokens, "tokens");
  const seed = field("seed of the random data", 0, LIMITS.seed, "seed");
  const labels = choiceButtons({
    label: "labels of random data",
    choices: [
      [RANDOM_LABELS[0], "told by the query", "the query points to one side for label +1, to the other for −1"],
      [RANDOM_LABELS[1], "free", "labels and queries are independent, as in the papers' random data"],
    ],
    onChoice: set("labels"),
  });
  const next = node(
    "button",
    { type: "button", onclick: () => draw(shown ? { seed: (plan.seed + 1) % (LIMITS.seed + 1) } : {}) },
    "Draw random data",
  );
  const element = node(
    "details",
    { class: "random" },
    node("summary", {}, "Random data"),
    node("div", { class: "pair" }, labelled("inputs", inputs.input), labelled("tokens", tokens.input)),
    labelled("labels", labels.element),
    node("div", { class: "pair" }, labelled("seed", seed.input), next),
  );
  let shown = false;

  function draw(changes) {
    plan = { ...plan, ...changes };
    onDraw(plan);
  }

  function update({ model }) {
    const { random } = model.state;
    shown = random !== null;
    if (shown) plan = random;
    inputs.show(plan.inputs);
    tokens.show(plan.tokens);
    seed.show(plan.seed);
    labels.show(plan.labels);
    setAttributes(next, { title: shown ? "the next seed" : "tokens on the unit circle" });
  }

  return { element, update };
}
