import {
  cloneRun,
  factorsCompanion,
  followData,
  removeCompanion,
  setSetting,
  setTrained,
  setTypedScores,
  toggleFactors,
} from "../state/actions.js";
import { LIMITS, LOSS_CHOICES, OPTIMIZER_CHOICES } from "../state/limits.js";
import { node, setAttributes, setText, shape, syncChildren } from "../view/dom.js";
import { runName } from "../words.js";
import { choiceButtons, labelled, numberField } from "./fields.js";

const OPTIMIZER_HINTS = {
  naive: "normalized, as a first attempt computes it: in single precision, for a prompt p only",
};

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
    choices: OPTIMIZER_CHOICES.map((name) => [name, name, OPTIMIZER_HINTS[name]]),
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
  const clone = node(
    "button",
    {
      type: "button",
      onclick: () => store.change((state) => cloneRun(state, runName(state.settings)), "clone"),
      title: "keep this run, data included, and compare with it whatever you change next",
    },
    "Clone this run",
  );
  const factors = node("button", { type: "button", onclick: () => store.change(toggleFactors, "factors") });
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
    node("div", { class: "run-buttons" }, clone, factors),
  );

  function update({ model }) {
    const { settings, state } = model;
    trained.show(settings.trained);
    headBox.checked = model.headTrained;
    setAttributes(headBox, { disabled: model.typed });
    setAttributes(headLabel, { title: model.typed ? "scores are typed, so there is no head to train" : null });
    scoring.show(model.typed ? "typed" : "head");
    optimizer.show(settings.optimizer, settings.trained === "p" ? [] : ["naive"]);
    loss.show(settings.loss);
    stepSize.show(settings.stepSize);
    steps.show(settings.steps);
    const full = state.companions.length >= LIMITS.companions;
    const sentence = full ? `at most ${LIMITS.companions} runs are drawn beside this one` : null;
    setAttributes(clone, { disabled: full, title: sentence ?? "keep this run, data included, to compare with it" });
    const both = factorsCompanion(state) >= 0;
    setAttributes(factors, { hidden: settings.trained === "p", disabled: full && !both, "aria-pressed": String(both) });
    setText(factors, settings.trained === "KQ" ? "W beside (K, Q)" : "(K, Q) beside W");
    syncChildren(
      kept,
      model.companions.map((companion, k) => ({ ...companion, k })),
      ({ k }) => String(k),
      createKept,
      (row, companion) => {
        const [, name, hold, button] = row.children;
        const own = state.companions[companion.k]?.problem !== undefined;
        setText(name, companion.name);
        setAttributes(row.firstChild.firstChild, { "stroke-dasharray": companion.dash });
        const words = own ? "on the data as they were when it was cloned" : "on the data on screen";
        const sameKind = (companion.settings.trained === "p") === (settings.trained === "p");
        setAttributes(hold, {
          hidden: !own && companion.dash === null,
          disabled: own && !sameKind,
          "aria-pressed": String(own),
          "aria-label": `hold the data of ${companion.name}`,
          title: own ? `${words}; press to let it follow the data on screen` : `${words}; press to hold on to these data`,
        });
        setText(hold, own ? "own data" : "follows");
        setAttributes(button, { "aria-label": `remove the run ${companion.name}` });
      },
    );
  }

  function createKept({ k }) {
    const line = shape("line", { x1: 1, x2: 21, y1: 3, y2: 3, stroke: "currentColor", "stroke-width": 1.5 });
    const hold = node(
      "button",
      {
        type: "button",
        class: "plain hold",
        onclick: () =>
          store.change((state) => followData(state, k, state.companions[k]?.problem !== undefined), "follow"),
      },
      "",
    );
    return node(
      "li",
      {},
      shape("svg", { viewBox: "0 0 22 6", width: 22, height: 6, "aria-hidden": "true" }, line),
      node("span", {}),
      hold,
      node(
        "button",
        { type: "button", class: "plain", onclick: () => store.change((state) => removeCompanion(state, k), "remove") },
        "×",
      ),
    );
  }

  return { element, update };
}
