import { pinRun, removeCompanion, setSetting, setTrained, setTypedScores } from "../state/actions.js";
import { LIMITS, LOSS_CHOICES, OPTIMIZER_CHOICES } from "../state/limits.js";
import { node, setAttributes, setText, syncChildren } from "../view/dom.js";
import { choiceButtons, labelled, numberField } from "./fields.js";

/** What is trained, how, and the runs kept beside it. */
export function createTraining({ store }) {
  const set = (name) => (value) => store.change((state) => setSetting(state, name, value), name);
  const trained = choiceButtons({
    label: "what is trained",
    choices: [
      ["p", "p", "a prompt p: logits x·p"],
      ["W", "W", "the weights W: logits xᵀ W z"],
      ["KQ", "(K, Q)", "the factors of W = K Qᵀ"],
    ],
    onChoice: (value) => store.change((state) => setTrained(state, value), "trained"),
  });
  const headBox = node("input", { type: "checkbox", onchange: () => set("trainHead")(headBox.checked) });
  const headLabel = node("label", { class: "check" }, headBox, "train the head v too");
  const scoring = choiceButtons({
    label: "where scores come from",
    choices: [
      ["head", "from the head v", "score = label · v·x"],
      ["typed", "typed", "score = label · a number for each token"],
    ],
    onChoice: (value) => store.change((state) => setTypedScores(state, value === "typed"), "scores"),
  });
  const optimizer = choiceButtons({
    label: "optimizer",
    choices: OPTIMIZER_CHOICES.map((name) => [name, name]),
    onChoice: set("optimizer"),
  });
  const loss = choiceButtons({
    label: "loss",
    choices: LOSS_CHOICES.map((name) => [name, name]),
    onChoice: set("loss"),
  });
  const stepSize = numberField({
    label: "step size",
    low: 0,
    high: LIMITS.stepSize,
    positive: true,
    onValue: set("stepSize"),
  });
  const steps = numberField({
    label: "iterations",
    low: 1,
    high: LIMITS.steps,
    whole: true,
    step: 1,
    onValue: set("steps"),
  });
  const pin = node(
    "button",
    {
      type: "button",
      onclick: () => store.change(pinRun, "pin"),
      title: "keep the present run on screen to compare the next one with it",
    },
    "Keep this run to compare",
  );
  const kept = node("ul", { class: "kept", "aria-label": "runs shown beside" });
  const element = node(
    "div",
    { class: "training" },
    labelled("train", trained.element),
    headLabel,
    labelled("scores", scoring.element),
    labelled("optimizer", optimizer.element),
    labelled("loss", loss.element),
    node("div", { class: "pair" }, labelled("step size", stepSize.input), labelled("iterations", steps.input)),
    kept,
    pin,
  );

  function update({ model }) {
    const { settings, state } = model;
    trained.show(settings.trained);
    headBox.checked = model.headTrained;
    setAttributes(headBox, { disabled: model.typed });
    setAttributes(headLabel, { title: model.typed ? "scores are typed, so there is no head to train" : null });
    scoring.show(model.typed ? "typed" : "head");
    optimizer.show(settings.optimizer);
    loss.show(settings.loss);
    stepSize.show(settings.stepSize);
    steps.show(settings.steps);
    setAttributes(pin, { disabled: state.companions.length >= LIMITS.companions });
    syncChildren(
      kept,
      model.companions.map((companion, k) => ({ ...companion, k })),
      ({ k }) => String(k),
      createKept,
      (row, companion) => {
        const [, name, button] = row.children;
        setText(name, companion.name);
        setAttributes(row.firstChild.firstChild, { "stroke-dasharray": companion.dash });
        setAttributes(button, { "aria-label": `remove the run ${companion.name}` });
      },
    );
  }

  function createKept({ k }) {
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    setAttributes(sample, { viewBox: "0 0 22 6", width: 22, height: 6, "aria-hidden": "true" });
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    setAttributes(line, { x1: 1, x2: 21, y1: 3, y2: 3, stroke: "currentColor", "stroke-width": 1.5 });
    sample.append(line);
    return node(
      "li",
      {},
      sample,
      node("span", {}),
      node(
        "button",
        { type: "button", class: "plain", onclick: () => store.change((state) => removeCompanion(state, k), "remove") },
        "×",
      ),
    );
  }

  return { element, update };
}
