import { LIMITS } from "./limits.js";
import { defaultQuery, hasTypedScores } from "./schema.js";

/**
 * Pure changes of the state: each takes a state and returns another one. What is no longer there cannot be changed: a
 * finger may still hold what a key has just removed, and then the same state comes back.
 */

function clamped(value, bound) {
  return Math.min(bound, Math.max(-bound, value));
}

function clampedPair(x) {
  return [clamped(x[0], LIMITS.coordinate), clamped(x[1], LIMITS.coordinate)];
}

function replaced(list, index, value) {
  return list.map((each, k) => (k === index ? value : each));
}

function withInputs(state, inputs, extra = {}) {
  return { ...state, ...extra, problem: { ...state.problem, inputs } };
}

function withInput(state, i, update) {
  if (state.problem.inputs[i] === undefined) return state;
  return withInputs(state, replaced(state.problem.inputs, i, update(state.problem.inputs[i])));
}

function withToken(state, i, t, update) {
  if (state.problem.inputs[i]?.tokens[t] === undefined) return state;
  return withInput(state, i, (input) => ({ ...input, tokens: replaced(input.tokens, t, update(input.tokens[t])) }));
}

function withStart(state, start) {
  return { ...state, settings: { ...state.settings, start: { ...state.settings.start, ...start } } };
}

export function moveToken(state, i, t, x) {
  return withToken(state, i, t, (token) => ({ ...token, x: clampedPair(x) }));
}

export function setScore(state, i, t, score) {
  if (!hasTypedScores(state.problem)) return state;
  return withToken(state, i, t, (token) => ({ ...token, score: clamped(score, LIMITS.score) }));
}

export function moveQuery(state, i, z) {
  return withInput(state, i, (input) => ({ ...input, query: clampedPair(z) }));
}

export function flipLabel(state, i) {
  return withInput(state, i, (input) => ({ ...input, label: -input.label }));
}

/** The head v; where it is trained, its starting point. */
export function moveHead(state, v) {
  const head = clampedPair(v);
  if (state.settings.trainHead) return { ...state, settings: { ...state.settings, startHead: head } };
  return { ...state, problem: { ...state.problem, head } };
}

/** The change of a matrix W that maps z to w and disturbs it least: W + (w - W z) z^T / |z|^2. */
function rankOneChange(W, z, w) {
  const size = z[0] * z[0] + z[1] * z[1];
  if (size === 0) return W;
  return W.map((row, a) => {
    const missing = (w[a] - (row[0] * z[0] + row[1] * z[1])) / size;
    return row.map((entry, b) => clamped(entry + missing * z[b], LIMITS.coordinate));
  });
}

function product(K, Q) {
  return K.map((row) => Q.map((other) => row[0] * other[0] + row[1] * other[1]));
}

/** Q with K Q^T = W; null where K cannot be inverted. */
function otherFactor(K, W) {
  const determinant = K[0][0] * K[1][1] - K[0][1] * K[1][0];
  if (Math.abs(determinant) < 1e-9) return null;
  const inverse = [
    [K[1][1] / determinant, -K[0][1] / determinant],
    [-K[1][0] / determinant, K[0][0] / determinant],
  ];
  return [0, 1].map((b) =>
    [0, 1].map((m) => clamped(inverse[m][0] * W[0][b] + inverse[m][1] * W[1][b], LIMITS.coordinate)),
  );
}

/** W(0) of the settings, whatever is trained; for p a column. */
export function startWeights(settings) {
  if (settings.trained === "p") return settings.start.p;
  return settings.trained === "W" ? settings.start.W : product(settings.start.K, settings.start.Q);
}

/** Where the path of input i starts in the plane: p(0), or W(0) z_i. */
export function startPoint(problem, settings, i) {
  const weights = startWeights(settings);
  if (settings.trained === "p") return weights;
  const z = problem.inputs[i].query;
  return weights.map((row) => row[0] * z[0] + row[1] * z[1]);
}

function movedStart(problem, settings, i, w) {
  if (settings.trained === "p") return { p: clampedPair(w) };
  const z = problem.inputs[i].query;
  const W = rankOneChange(startWeights(settings), z, w);
  if (settings.trained === "W") return { W };
  const Q = otherFactor(settings.start.K, W);
  if (Q !== null) return { Q };
  const K = [
    [0.1, 0],
    [0, 0.1],
  ];
  return { K, Q: otherFactor(K, W) };
}

/** Where the item of a key is in the plane (token-0-1, query-0, head, start-0, companion-0); null if it is not there. */
export function itemPlace(state, key) {
  const { problem, settings } = state;
  const [kind, first, second] = key.split("-");
  const i = Number(first);
  if (kind === "token") return problem.inputs[i]?.tokens[Number(second)]?.x ?? null;
  if (kind === "head") return settings.trainHead ? settings.startHead : problem.head;
  if (kind === "companion") {
    const companion = state.companions[i];
    return companion === undefined ? null : startPoint(problem, companionSettings(settings, companion), 0);
  }
  if (problem.inputs[i] === undefined) return null;
  return kind === "query" ? problem.inputs[i].query : startPoint(problem, settings, i);
}

/** Drag the start of input i's path to w: p(0) = w, or the W(0) nearest to the present one with W(0) z_i = w. */
export function moveStart(state, i, w) {
  if (state.problem.inputs[i] === undefined) return state;
  return withStart(state, movedStart(state.problem, state.settings, i, w));
}

/** The settings of a companion: the main ones, with its own instead. */
export function companionSettings(settings, companion) {
  const { name, problem, ...own } = companion;
  return { ...settings, ...own, start: { ...settings.start, ...companion.start } };
}

/** The same for a companion, which then has a start of its own. */
export function moveCompanionStart(state, index, i, w) {
  const companion = state.companions[index];
  if (companion === undefined) return state;
  const settings = companionSettings(state.settings, companion);
  const start = { ...companion.start, ...movedStart(state.problem, settings, i, w) };
  return { ...state, companions: replaced(state.companions, index, { ...companion, start }) };
}

export function setStart(state, start) {
  return withStart(state, start);
}

function typedScore(state) {
  return hasTypedScores(state.problem) ? 0 : null;
}

/** A new token of input i at x, the place of the last one moved a little if x is not given. */
export function addToken(state, i, x) {
  const input = state.problem.inputs[i];
  if (input === undefined || input.tokens.length >= LIMITS.tokens) return state;
  const last = input.tokens[input.tokens.length - 1].x;
  const place = x ?? [last[0] + 0.2, last[1] - 0.2];
  return withInput(state, i, (each) => ({
    ...each,
    tokens: [...each.tokens, { x: clampedPair(place), score: typedScore(state) }],
  }));
}

export function removeToken(state, i, t) {
  const input = state.problem.inputs[i];
  if (input?.tokens[t] === undefined) return state;
  if (input.tokens.length <= 1) return removeInput(state, i);
  const next = withInput(state, i, (each) => ({ ...each, tokens: each.tokens.filter((_, k) => k !== t) }));
  return { ...next, shown: null };
}

export function addInput(state) {
  const { inputs } = state.problem;
  if (inputs.length >= LIMITS.inputs) return state;
  const turn = inputs.length * 2.1;
  const score = typedScore(state);
  const reach = 0.6 * state.view.extent;
  const rounded = (entry) => Math.round(entry * 100) / 100;
  const place = (angle, radius) => [rounded(radius * Math.cos(angle)), rounded(radius * Math.sin(angle))];
  const tokens = [
    { x: place(turn, reach), score: score === null ? null : 1 },
    { x: place(turn + 2.2, 0.6 * reach), score },
    { x: place(turn - 2.2, 0.6 * reach), score },
  ];
  return withInputs(state, [...inputs, { label: 1, query: defaultQuery(inputs.length), tokens }], { shown: null });
}

export function removeInput(state, i) {
  const { inputs } = state.problem;
  if (inputs.length <= 1 || inputs[i] === undefined) return state;
  return withInputs(
    state,
    inputs.filter((_, k) => k !== i),
    { shown: null },
  );
}

/** Whether a companion is a run of its own, not only another start of the same one. */
export function isComparison(companion) {
  return Object.keys(companion).some((key) => key !== "start" && key !== "startHead");
}

/** A companion with the problem and everything else as they are now: nothing that is changed later changes it. */
function frozen(state, companion) {
  const { trained, trainHead, optimizer, loss, stepSize, steps, start, startHead } = companionSettings(
    state.settings,
    companion,
  );
  const problem = companion.problem ?? state.problem;
  const named = companion.name === undefined ? {} : { name: companion.name };
  return { ...named, trained, trainHead, optimizer, loss, stepSize, steps, start, startHead, problem };
}

/** Choose what is trained. Where that is another kind of problem, comparisons keep theirs and other starts are dropped. */
export function setTrained(state, trained) {
  if (trained === state.settings.trained) return state;
  const sameKind = (trained === "p") === (state.settings.trained === "p");
  const { optimizer } = state.settings;
  return {
    ...state,
    problem: { ...state.problem, kind: trained === "p" ? "prompt" : "matrix" },
    settings: { ...state.settings, trained, optimizer: optimizer === "naive" ? "normalized" : optimizer },
    companions: sameKind
      ? state.companions
      : state.companions.filter(isComparison).map((companion) => frozen(state, companion)),
  };
}

export function setSetting(state, name, value) {
  if (state.settings[name] === value) return state;
  const next = { ...state, settings: { ...state.settings, [name]: value } };
  return name === "steps" && next.time !== null ? { ...next, time: Math.min(next.time, value) } : next;
}

/** Type the scores (each keeps the one it has), or take them from the head again. */
export function setTypedScores(state, typed) {
  if (typed === hasTypedScores(state.problem)) return state;
  const { head } = state.problem;
  const score = (x) => Math.round((head[0] * x[0] + head[1] * x[1]) * 1000) / 1000;
  const inputs = state.problem.inputs.map((input) => ({
    ...input,
    tokens: input.tokens.map((token) => ({ ...token, score: typed ? score(token.x) : null })),
  }));
  return withInputs(state, inputs, typed ? { settings: { ...state.settings, trainHead: false } } : {});
}

/** Clone the present run under a name, data included: whatever is changed next can be compared with it. */
export function cloneRun(state, name) {
  if (state.companions.length >= LIMITS.companions) return state;
  const names = new Set(state.companions.map((companion) => companion.name));
  let free = name;
  for (let k = 2; names.has(free); k += 1) free = `${name} (${k})`;
  return { ...state, companions: [...state.companions, frozen(state, { name: free })] };
}

/** Let a clone follow the data on screen, or hold on to the data as they are now. */
export function followData(state, index, follow) {
  const companion = state.companions[index];
  if (companion === undefined) return state;
  const { problem, ...own } = companion;
  return {
    ...state,
    companions: replaced(state.companions, index, follow ? own : { ...own, problem: state.problem }),
  };
}

function otherFactors(settings) {
  return settings.trained === "KQ" ? "W" : "KQ";
}

/** The place of the companion that trains (K, Q) beside W, or W beside (K, Q), and differs in nothing else; or -1. */
export function factorsCompanion(state) {
  return state.companions.findIndex(
    (companion) =>
      companion.trained === otherFactors(state.settings) &&
      Object.keys(companion).every((key) => key === "trained" || key === "start"),
  );
}

/** Show (K, Q) beside W, or W beside (K, Q); or no longer. */
export function toggleFactors(state) {
  if (state.settings.trained === "p") return state;
  const at = factorsCompanion(state);
  if (at >= 0) return removeCompanion(state, at);
  if (state.companions.length >= LIMITS.companions) return state;
  return { ...state, companions: [...state.companions, { trained: otherFactors(state.settings) }] };
}

export function removeCompanion(state, index) {
  if (state.companions[index] === undefined) return state;
  return { ...state, companions: state.companions.filter((_, k) => k !== index) };
}

export function showSelection(state, selected) {
  return { ...state, shown: selected };
}

export function setTime(state, time) {
  return state.time === time ? state : { ...state, time };
}

export function setLayer(state, name, on) {
  return { ...state, view: { ...state.view, layers: { ...state.view.layers, [name]: on } } };
}

/** How fresh inputs are made. */
export function setFresh(state, changes) {
  const fresh = { ...state.view.fresh, ...changes };
  return { ...state, view: { ...state.view, fresh: { ...fresh, seed: fresh.seed % (LIMITS.seed + 1) } } };
}
