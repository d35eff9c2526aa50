import { angle, capital, decimal, grouped, percent, point, significant } from "./format.js";

/** Everything the page says in sentences. Inputs and tokens count from 0, as in Python. */

function listed(parts) {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

/** "token 2", or where there are several inputs "token 2 of input 0". */
export function tokenName(problem, i, t) {
  return problem.inputs.length === 1 ? `token ${t}` : `token ${t} of input ${i}`;
}

/** What a page says that was opened without a scene of its own: first, and when the run has been shown. */
export const OPENING_SENTENCE =
  "Each mark is a token, a piece of an input; its size is its attention, the share of it that gets read; and training " +
  "moves the weights W, drawn as growing lines, until one token of each input is read alone.";
export const INVITATION =
  "That was one training run. Now you: drag any mark and watch the lines follow, or take the story in seven short steps.";

/** Names of the lines of the picture; marks that can be moved have names of their own. */
export const LINE_NAMES = {
  path: (image, place) => `training: the path of ${image}${place}`,
  companion: (name) => `path of the run beside: ${name}`,
  head: "training: the path of the head v",
  ray: (image, place) => `max-margin direction${place}: theory says that ${image} turns to it`,
  headRay: "the direction to which theory says that the head v turns",
  sideRay: "max-margin direction of a run beside",
  otherRay: "max-margin direction of another locally optimal selection",
  margin: (place) => `separating line${place}, half way between the edges of its margin`,
  pull: "pull of one token against the others: together they cancel",
  ring: (distance) => `length ${distance}; every ring is ten times as far as the one inside`,
};

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
  if (model.bestSet[i].has(t)) parts.push(isTied(model, i) ? "tied for optimal" : "optimal");
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
    if (selected.some((_, i) => isTied(model, i))) return several ? "among the best, with a tie" : "one of the best, with a tie";
    return several ? "the optimal tokens" : "the optimal token";
  }
  if (local?.answer) return several ? "which are only locally optimal" : "which is only locally optimal";
  return several ? "which are not even locally optimal" : "which is not even locally optimal";
}

/** The tokens of an input that lie in the same place as token t, t among them. */
function coincident(input, t) {
  const [a, b] = input.tokens[t].x;
  return input.tokens.flatMap(({ x }, u) => (x[0] === a && x[1] === b ? [u] : []));
}

/** Whether an input's best score is shared by tokens in different places; tokens in one place are no tie. */
function isTied(model, i) {
  const twins = coincident(model.problem.inputs[i], model.optimal.tokens[i]);
  return model.optimal.tied[i] && [...model.bestSet[i]].some((t) => !twins.includes(t));
}

/** Why no step can change the attention of any input: one reason for all, or nothing where they differ. */
function standstillReason(model) {
  const { problem, scores } = model;
  const reasons = problem.inputs.map((input, i) => {
    if (input.tokens.length === 1) return "one token has all the attention from the beginning";
    if (coincident(input, 0).length === input.tokens.length) return "all tokens lie in one place";
    if (problem.kind === "matrix" && input.query[0] === 0 && input.query[1] === 0) return "the query is zero";
    if (!model.headTrained && scores[i].every((score) => score === scores[i][0])) return "all tokens score the same";
    return "";
  });
  return reasons.every((reason) => reason === reasons[0]) ? reasons[0] : "";
}

/** " of input 1", or nothing where there is only one. */
export function inputPlace(problem, i) {
  return problem.inputs.length === 1 ? "" : ` of input ${i}`;
}

/** The token of an input with the largest share; tokens in one place cannot be told apart and count together. */
function leaderOf(input, shares) {
  const token = shares.indexOf(Math.max(...shares));
  const group = coincident(input, token);
  const name = group.length === 1 ? `token ${token}` : `tokens ${listed(group.map(String))} together`;
  return { token, name, share: group.reduce((sum, t) => sum + shares[t], 0) };
}

/** How attention is divided at the present step, and where that is not where the run ends. */
function attentionClause(model, when) {
  const { problem, attention, selected } = model;
  const leaders = problem.inputs.map((input, i) => leaderOf(input, attention[i]));
  const open = leaders.map((_, i) => i).filter((i) => leaders[i].share < 0.9);
  const even = attention.every((shares) => Math.max(...shares) - Math.min(...shares) < 1e-9);
  if (even && open.length > 0) {
    const counts = new Set(attention.map((shares) => shares.length));
    const share = counts.size === 1 ? `, ${percent(attention[0][0])}` : "";
    return `${when} attention is spread evenly: every token${problem.inputs.length > 1 ? " of an input" : ""} has the same share${share}`;
  }
  const later = leaders.some(({ token }, i) => !coincident(problem.inputs[i], token).includes(selected[i]))
    ? `; that will change: the run ends on ${selectionName(problem, selected)}`
    : "";
  if (open.length === 0) {
    const tokens = leaders.map(({ token }) => token);
    const named = leaders.length === 1 ? leaders[0].name : selectionName(problem, tokens);
    return `${when} attention has settled on ${named}${later}`;
  }
  const least = open.reduce((a, b) => (leaders[b].share < leaders[a].share ? b : a));
  const { name, share } = leaders[least];
  const how =
    share < 0.5
      ? `is ${model.index === 0 ? "" : "still "}spread: ${name} ${name.startsWith("tokens") ? "have" : "has"} the largest share, ${percent(share)}`
      : `leans to ${name}, with ${percent(share)}`;
  return `${when} attention${inputPlace(problem, least)} ${how}${later}`;
}

/** What is true at the present step of the run; at its end, what descent has selected. `news`: that is a change. */
function stepClause(model, news) {
  const { problem, run, selected, index } = model;
  if (run.stalled && run.norm[run.norm.length - 1] === run.norm[0]) {
    const reason = standstillReason(model);
    return `descent does not move from here: ${reason === "" ? "" : `${reason}, so `}the gradient is zero`;
  }
  const count = run.steps[index];
  if (index < run.steps.length - 1) {
    const when = count === 0 ? "at the start" : `at step ${grouped(count)}`;
    const ends = news ? `the run now ends on ${selectionName(problem, selected)}; ` : "";
    return ends + attentionClause(model, when);
  }
  if (run.overflowed) return "descent stopped: a step left the range of floating point";
  const open = problem.inputs.some((input, i) => leaderOf(input, model.attention[i]).share < 0.9);
  if (open) return attentionClause(model, `after ${count === 1 ? "1 step" : `${grouped(count)} steps`}`);
  const verdict = verdictOf(model, selected, model.reachedLocal);
  return `descent from here ${news ? "now " : ""}selects ${selectionName(problem, selected)}${verdict === "" ? "" : `, ${verdict}`}`;
}

const WEIGHT_NAMES = { p: "p", W: "W", KQ: "W = K Qᵀ" };

/** How long the weights are at the present step and where they point; nothing where they do not move. */
function weightSentence(model) {
  const { run, index, settings } = model;
  if (run.stalled && run.norm[run.norm.length - 1] === run.norm[0]) return "";
  const name = WEIGHT_NAMES[settings.trained];
  if (run.norm[index] === 0) return ` ${name} is zero and points nowhere yet.`;
  const cosine = model.cosine[index];
  const direction = cosine === null ? "" : ` and points ${angle(cosine)} away from the max-margin direction`;
  return ` ${name} has length ${significant(run.norm[index])}${direction}.`;
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
    if (isTied(model, i) && !model.headTrained) {
      const tied = [...model.bestSet[i]];
      phrases.push(
        tied.length === input.tokens.length
          ? `all tokens${inputPlace(problem, i)} score the same`
          : `tokens ${listed(tied.map(String))}${inputPlace(problem, i)} tie for the best score`,
      );
    }
    input.tokens.forEach((_, t) => {
      const twins = coincident(input, t);
      if (twins.length > 1 && twins[0] === t)
        phrases.push(
          `tokens ${listed(twins.map(String))}${inputPlace(problem, i)} lie on top of each other, so they always share attention equally`,
        );
    });
  });
  return phrases;
}

/** Why there is no locally optimal selection. */
export function noOptimaReason(model) {
  const { problem, scores } = model;
  const all = (text) => `There is none: ${text}.`;
  for (const [i, input] of problem.inputs.entries()) {
    const place = inputPlace(problem, i);
    if (problem.kind === "matrix" && input.query[0] === 0 && input.query[1] === 0)
      return all(`the query${place} is zero, so no weights separate its tokens`);
    if (input.tokens.length > 1 && input.tokens.every((_, t) => coincident(input, t).length > 1))
      return all(`every token${place} lies on top of another one`);
    if (input.tokens.length > 1 && scores[i].every((score) => score === scores[i][0]))
      return all(`all tokens${place} score the same, and a selected token must outscore its support tokens`);
  }
  return all("every selection either cannot be separated or has a support token that scores as high");
}

/** The explanatory line: what a change did, and what is true at the present step. */
export function explanation(before, model, cosineOf) {
  const news = before !== null && sameShape(before, model) && before.selected.some((t, i) => t !== model.selected[i]);
  const phrases = [...changePhrases(before, model, cosineOf), stepClause(model, news)];
  const sentences = [`${capital(phrases.join("; "))}.${weightSentence(model)}`];
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
  naive: "naive gradient",
};
const LOSS_WORDS = { logistic: "logistic loss", exponential: "exponential loss", linear: "linear loss" };
const TRAINED_WORDS = { p: "p", W: "W", KQ: "(K, Q)" };

/** A run in a few words, as it is called when it is cloned. */
export function runName({ trained, trainHead, optimizer, loss, stepSize }) {
  const parts = [TRAINED_WORDS[trained] + (trainHead ? " and v" : ""), OPTIMIZER_WORDS[optimizer]];
  if (loss !== "logistic") parts.push(LOSS_WORDS[loss]);
  parts.push(`step ${significant(stepSize)}`);
  return parts.join(", ");
}

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
