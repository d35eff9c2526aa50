import { decimal, grouped, percent, point, significant } from "./format.js";

/** Everything the page says in sentences. Inputs and tokens count from 0, as in Python. */

function listed(parts) {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** "token 2", or where there are several inputs "token 2 of input 0". */
export function tokenName(problem, i, t) {
  return problem.inputs.length === 1 ? `token ${t}` : `token ${t} of input ${i}`;
}

/** A selection in words. */
export function selectionName(problem, selected) {
  if (problem.inputs.length === 2 && selected[0] === selected[1]) return `token ${selected[0]} of both inputs`;
  if (problem.inputs.length <= 2) return listed(selected.map((t, i) => tokenName(problem, i, t)));
  if (selected.every((t) => t === selected[0])) return `token ${selected[0]} of every input`;
  return `tokens ${selected.join(", ")} of inputs 0 to ${selected.length - 1}`;
}

/** A selection in a few letters, for lists: "0 · 2 · 1". */
export function selectionShort(selected) {
  return selected.join(" · ");
}

/** What a screen reader says of a token. */
export function tokenLabel(model, i, t) {
  const { problem } = model;
  const parts = [
    `${tokenName(problem, i, t)} at ${point(problem.inputs[i].tokens[t].x)}`,
    `score ${significant(model.scores[i][t])}`,
    `attention ${percent(model.attention[i][t])}`,
  ];
  if (model.bestSet[i].has(t)) parts.push(model.optimal.tied[i] ? "tied for optimal" : "optimal");
  if (model.shown[i] === t) parts.push("selected");
  if (model.support[i].has(t)) parts.push("support token");
  return parts.join(", ");
}

function isOptimalSelection(model, selected) {
  return selected.every((t, i) => model.bestSet[i].has(t));
}

/** What the selection is worth: optimal, locally optimal, or neither. */
export function verdictOf(model, selected, local) {
  const several = selected.length > 1;
  if (model.headTrained) return "";
  if (isOptimalSelection(model, selected)) {
    if (model.optimal.tied.some(Boolean)) return several ? "among the best, with a tie" : "one of the best, with a tie";
    return several ? "the optimal tokens" : "the optimal token";
  }
  if (local?.answer) return several ? "which are only locally optimal" : "which is only locally optimal";
  return several ? "which are not even locally optimal" : "which is not even locally optimal";
}

/** One sentence on where descent ends; `now` stands in it where that is news. */
function descentSentence(model, now) {
  const { problem, run, selected } = model;
  if (run.overflowed) return "descent stopped: a step left the range of floating point";
  if (run.stalled && run.norm[run.norm.length - 1] === run.norm[0])
    return "descent does not move from here: the gradient is zero";
  const last = run.attention[run.attention.length - 1];
  const open = selected
    .map((t, i) => i)
    .filter((i) => problem.inputs[i].tokens.length > 1 && last[i][selected[i]] < 0.9);
  const count = run.steps[run.steps.length - 1];
  const steps = count === 1 ? "1 step" : `${grouped(count)} steps`;
  if (open.length > 0) {
    const i = open[0];
    const place = problem.inputs.length === 1 ? "" : ` of input ${i}`;
    return `after ${steps} attention${place} is still spread: ${percent(last[i][selected[i]])} on token ${selected[i]}`;
  }
  const verdict = verdictOf(model, selected, model.reachedLocal);
  return `descent from here ${now ? "now " : ""}selects ${selectionName(problem, selected)}${verdict === "" ? "" : `, ${verdict}`}`;
}

function nameTokens(problem, pairs) {
  if (pairs.length > 3) return `${pairs.length} tokens`;
  return listed(pairs.map(([i, t]) => tokenName(problem, i, t)));
}

function difference(first, second) {
  return first.flatMap((set, i) => [...set].filter((t) => !second[i]?.has(t)).map((t) => [i, t]));
}

function sameShape(a, b) {
  return (
    a.problem.kind === b.problem.kind &&
    a.problem.inputs.length === b.problem.inputs.length &&
    a.problem.inputs.every((input, i) => input.tokens.length === b.problem.inputs[i].tokens.length)
  );
}

function turnBetween(a, b, cosineOf) {
  const cosine = a?.weights && b?.weights ? cosineOf(a.weights, b.weights) : null;
  return cosine === null ? null : (Math.acos(Math.min(1, cosine)) * 180) / Math.PI;
}

/** What changed between two pictures, as phrases; empty where nothing worth saying did. */
function changePhrases(before, after, cosineOf) {
  if (before === null || !sameShape(before, after)) return [];
  const { problem } = after;
  const phrases = [];
  const sameSelection = before.shown.every((t, i) => t === after.shown[i]);
  if (before.solution.status !== "infeasible" && after.solution.status === "infeasible")
    phrases.push("the selection can no longer be separated");
  else if (before.solution.status === "infeasible" && after.solution.status === "solved")
    phrases.push("the selection can be separated again");
  else if (sameSelection && after.solution.status === "solved") {
    const gained = difference(after.support, before.support);
    const lost = difference(before.support, after.support);
    if (gained.length > 0)
      phrases.push(
        `${nameTokens(problem, gained)} ${gained.length === 1 ? "is now a support token" : "are now support tokens"}`,
      );
    if (lost.length > 0)
      phrases.push(
        `${nameTokens(problem, lost)} no longer ${lost.length === 1 ? "is a support token" : "are support tokens"}`,
      );
    const turn = turnBetween(before.prediction, after.prediction, cosineOf);
    if (turn !== null && before.problem !== after.problem) {
      if (turn > 0.05) phrases.push(`the max-margin direction turned by ${decimal(turn, 1)}°`);
      else if (turn < 1e-5 && phrases.length === 0) phrases.push("the max-margin direction has not moved");
    }
  }
  return phrases;
}

/** Degenerate positions in words; empty where there are none. */
function warningPhrases(model) {
  const { problem } = model;
  const phrases = [];
  problem.inputs.forEach((input, i) => {
    if (problem.kind === "matrix" && input.query[0] === 0 && input.query[1] === 0) {
      phrases.push(`the query of input ${i} is zero, so its attention stays uniform`);
    }
    if (model.optimal.tied[i] && input.tokens.length > 1 && !model.headTrained) {
      const tied = [...model.bestSet[i]];
      const place = problem.inputs.length === 1 ? "" : ` of input ${i}`;
      phrases.push(
        tied.length === input.tokens.length
          ? `all tokens${place} score the same`
          : `tokens ${listed(tied.map(String))}${place} tie for the best score`,
      );
    }
    input.tokens.forEach((token, t) => {
      const twin = input.tokens.findIndex(
        (other, u) => u < t && other.x[0] === token.x[0] && other.x[1] === token.x[1],
      );
      if (twin >= 0) phrases.push(`${tokenName(problem, i, twin)} and token ${t} lie on top of each other`);
    });
  });
  return phrases;
}

/** The explanatory line. */
export function explanation(before, model, cosineOf) {
  const news = before !== null && sameShape(before, model) && before.selected.some((t, i) => t !== model.selected[i]);
  const phrases = [...changePhrases(before, model, cosineOf), descentSentence(model, news)];
  const sentences = [`${capital(phrases.join("; "))}.`];
  if (model.solution.status === "infeasible")
    sentences.push(
      `No direction can single out ${selectionName(model.problem, model.shown)}${model.conflicts.length > 1 ? ": the dashed pulls cancel" : ""}.`,
    );
  if (model.solution.status === "not found") sentences.push(model.solution.sentence);
  const warnings = warningPhrases(model);
  if (warnings.length > 0) sentences.push(`${capital(warnings.slice(0, 2).join("; "))}.`);
  if (model.optimalOutOfReach)
    sentences.push(
      `${capital(selectionName(model.problem, model.optimal.tokens))} would score best, but nothing separates ${model.problem.inputs.length === 1 ? "it" : "them"}.`,
    );
  return sentences.join(" ");
}

const OPTIMIZER_WORDS = {
  normalized: "normalized gradient",
  gradient: "gradient",
  sign: "sign descent",
  spectral: "spectral descent",
};
const LOSS_WORDS = { logistic: "logistic loss", exponential: "exponential loss", linear: "linear loss" };
const TRAINED_WORDS = { p: "p", W: "W", KQ: "(K, Q)" };

/** What sets a companion apart from the main run. */
export function companionName(companion, settings, startText) {
  if (companion.name) return companion.name;
  const parts = [];
  if (companion.trained && companion.trained !== settings.trained) parts.push(TRAINED_WORDS[companion.trained]);
  if (companion.optimizer && companion.optimizer !== settings.optimizer)
    parts.push(OPTIMIZER_WORDS[companion.optimizer]);
  if (companion.loss && companion.loss !== settings.loss) parts.push(LOSS_WORDS[companion.loss]);
  if (companion.stepSize && companion.stepSize !== settings.stepSize)
    parts.push(`step ${significant(companion.stepSize)}`);
  if (parts.length === 0 && startText) parts.push(`from ${startText}`);
  return parts.length > 0 ? parts.join(", ") : "the same run";
}
