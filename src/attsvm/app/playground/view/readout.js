import { node, setAttributes, setText } from "./dom.js";
import { createRunTable } from "./comparison.js";
import { grouped, nearOne, scientific } from "../format.js";
import { selectionName, verdictOf } from "../words.js";

/** The number that climbs to 1, and what it is a cosine to. */
export function createReadout({ onFollow }) {
  const cosine = node("span", { class: "cosine" });
  const rest = node("span", { class: "rest" });
  const meter = node("span", { class: "meter", "aria-hidden": "true" }, node("span", {}));
  const aim = node("p", { class: "aim" });
  const margin = node("p", { class: "efficiency" });
  const choice = node("p", { class: "choice" });
  const theory = node("p", { class: "hint" });
  const follow = node("button", { type: "button", class: "plain", onclick: onFollow }, "Follow the run again");
  const notes = node("ul", { class: "notes" });
  const runs = createRunTable();
  const element = node(
    "div",
    { class: "readout" },
    node("div", { class: "cosine-line" }, node("span", { class: "cosine-name" }, "cosine"), cosine, rest),
    meter,
    aim,
    margin,
    choice,
    theory,
    follow,
    notes,
    runs.element,
  );

  function update({ model }) {
    runs.update({ model });
    const now = model.cosine[model.index];
    setText(cosine, now === null ? "–" : nearOne(now));
    setText(
      rest,
      now === null ? "no direction yet" : 1 - now < 1e-12 ? "to rounding" : `1 − ${scientific(1 - now, 1)}`,
    );
    meter.firstChild.style.setProperty("transform", `scaleX(${Math.max(0, now ?? 0).toFixed(4)})`);
    setText(aim, `${aimText(model)} · step ${grouped(model.run.steps[model.index])}`);
    setText(margin, marginText(model));
    setAttributes(margin, { hidden: model.efficiency === null });
    const verdict = verdictOf(model, model.shown, model.shownLocal);
    const pinned = model.state.shown !== null;
    setText(
      choice,
      `${pinned ? "Shown" : model.index < model.run.steps.length - 1 ? "The run will select" : "Selected"}: ${selectionName(model.problem, model.shown)}${verdict ? `, ${verdict}` : ""}.`,
    );
    const several = model.norm === "spectral" || model.norm === "max-entry";
    setText(
      theory,
      `${theoryText(model)}${several ? " In this norm several directions may be best: the margin says more than the cosine." : ""}`,
    );
    setAttributes(follow, { hidden: !pinned });
    const lines = [...model.run.notes];
    if (model.partial)
      lines.push(
        `While you drag, the first ${grouped(model.run.steps[model.run.steps.length - 1])} of ${grouped(model.settings.steps)} steps are shown.`,
      );
    notes.replaceChildren(...lines.map((line) => node("li", {}, line)));
  }

  return { element, update };
}

function theoryText({ prediction, shownLocal, settings }) {
  if (settings.optimizer === "naive")
    return "Theory speaks of the exact gradient; in single precision it is round-off once attention is saturated.";
  if (prediction.weights !== null && shownLocal?.violations.length > 0)
    return "No theorem promises this direction: a support token scores at least as high as a selected one.";
  return prediction.sentence;
}

function marginText(model) {
  if (model.efficiency === null) return "";
  if (model.efficiency <= 0) return "margin: some token still beats a selected one";
  return `margin: ${nearOne(model.efficiency)} of the best in this norm`;
}

function aimText(model) {
  if (!model.prediction?.weights) return "No max-margin direction to compare with";
  return `to the ${model.prediction.label} max-margin direction`;
}
