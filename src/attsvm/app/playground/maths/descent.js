/** Descent: the same iterates as `attsvm.fit` up to rounding, for one problem in the plane. */
import { LARGEST_PARAMETER, euclideanLength, usableNumber } from "./numbers.js";
import { modelOf } from "./model.js";
import { LOSS_ORDER, attendForward, logProbability, lossValue, passOf, riskBackward } from "./gradient.js";
import { naiveStep } from "./naive.js";
import { OPTIMIZER_ORDER, writeDirection } from "./steepest.js";

/**
 * @typedef {Object} Settings
 * @property {"p"|"W"|"KQ"} trained
 * @property {boolean} trainHead
 * @property {"gradient"|"normalized"|"sign"|"spectral"|"naive"} optimizer naive: normalized, in single precision (p only)
 * @property {"logistic"|"exponential"|"linear"} loss
 * @property {number} stepSize
 * @property {number} steps
 * @property {Object} start {p: [..]}, {W: [[..], [..]]} or {K: .., Q: ..}
 * @property {number[]} startHead
 */

/** More steps than this are not taken: a page would stand still. */
export const MOST_STEPS = 1000000;

const AT_WEIGHTS = 0;
const AT_QUERY = 4;
const AT_HEAD = 8;

/** The moving part of a run: parameters [W or K: 4, Q: 4, head: 2], and what happened on the way. */
export function descentOf(model, settings) {
  const given = settings || {};
  const factored = given.trained === "KQ" && !model.prompt;
  const run = {
    model,
    factored,
    headTrained: Boolean(given.trainHead) && !model.explicit,
    headRefused: Boolean(given.trainHead) && model.explicit,
    optimizer: Math.max(0, OPTIMIZER_ORDER.indexOf(given.optimizer)),
    naive: given.optimizer === "naive" && model.prompt,
    loss: Math.max(0, LOSS_ORDER.indexOf(given.loss)),
    stepSize: usableNumber(given.stepSize),
    parameters: new Float64Array(10),
    gradients: new Float64Array(10),
    moved: new Float64Array(10),
    pass: passOf(model),
    stalled: false,
    overflowed: false,
  };
  const start = given.start || {};
  if (factored) {
    writeMatrix(run.parameters, AT_WEIGHTS, start.K);
    writeMatrix(run.parameters, AT_QUERY, start.Q);
  } else if (model.prompt) {
    const prompt = start.p || start.W || [];
    run.parameters[0] = usableNumber(flatEntry(prompt, 0));
    run.parameters[2] = usableNumber(flatEntry(prompt, 1));
  } else {
    writeMatrix(run.parameters, AT_WEIGHTS, start.W);
  }
  const head = run.headTrained && given.startHead ? given.startHead : model.head;
  run.parameters[AT_HEAD] = usableNumber(head[0]);
  run.parameters[AT_HEAD + 1] = usableNumber(head[1]);
  combineWeights(run);
  return run;
}

function flatEntry(values, j) {
  const flat = Array.isArray(values[0]) ? values.flat() : values;
  return flat[j];
}

function writeMatrix(target, at, matrix) {
  for (let j = 0; j < 4; j++) target[at + j] = matrix ? usableNumber(flatEntry(matrix, j)) : 0;
}

/** Bring W = K Q^T (or W itself) and the head to where the forward pass reads them. */
export function combineWeights(run) {
  const { parameters: from, pass } = run;
  const to = pass.weights;
  if (run.factored) {
    to[0] = from[0] * from[4] + from[1] * from[5];
    to[1] = from[0] * from[6] + from[1] * from[7];
    to[2] = from[2] * from[4] + from[3] * from[5];
    to[3] = from[2] * from[6] + from[3] * from[7];
  } else {
    to[0] = from[0];
    to[1] = from[1];
    to[2] = from[2];
    to[3] = from[3];
  }
  pass.head[0] = from[AT_HEAD];
  pass.head[1] = from[AT_HEAD + 1];
}

/** Take `count` steps; stops where the gradient is exactly zero (nothing would move) or a step would overflow. */
export function advanceDescent(run, count) {
  const { model, pass, parameters, gradients, moved, stepSize, optimizer, factored, headTrained, loss } = run;
  const inWeights = pass.inWeights;
  for (let step = 0; step < count; step++) {
    if (run.stalled || run.overflowed) return;
    if (run.naive) {
      run.stalled = !naiveStep(model, parameters, stepSize, loss, headTrained);
      combineWeights(run);
      continue;
    }
    attendForward(model, pass, headTrained);
    riskBackward(model, pass, loss, headTrained);
    const g0 = inWeights[0];
    const g1 = inWeights[1];
    const g2 = inWeights[2];
    const g3 = inWeights[3];
    let used = 4;
    if (factored) {
      gradients[0] = g0 * parameters[4] + g1 * parameters[6];
      gradients[1] = g0 * parameters[5] + g1 * parameters[7];
      gradients[2] = g2 * parameters[4] + g3 * parameters[6];
      gradients[3] = g2 * parameters[5] + g3 * parameters[7];
      gradients[4] = g0 * parameters[0] + g2 * parameters[2];
      gradients[5] = g0 * parameters[1] + g2 * parameters[3];
      gradients[6] = g1 * parameters[0] + g3 * parameters[2];
      gradients[7] = g1 * parameters[1] + g3 * parameters[3];
      writeDirection(optimizer, gradients, 0, 4, pass.scale, moved, 0);
      writeDirection(optimizer, gradients, 4, 4, pass.scale, moved, 4);
      used = 8;
    } else {
      gradients[0] = g0;
      gradients[1] = g1;
      gradients[2] = g2;
      gradients[3] = g3;
      writeDirection(optimizer, gradients, 0, 4, pass.scale, moved, 0);
    }
    let still = true;
    let finite = true;
    for (let j = 0; j < used; j++) {
      if (gradients[j] !== 0) still = false;
      moved[j] = parameters[j] - stepSize * moved[j];
      if (!(Math.abs(moved[j]) <= LARGEST_PARAMETER)) finite = false;
    }
    if (headTrained) {
      writeDirection(optimizer, pass.inHead, 0, 2, pass.headScale, moved, AT_HEAD);
      for (let j = 0; j < 2; j++) {
        if (pass.inHead[j] !== 0) still = false;
        moved[AT_HEAD + j] = parameters[AT_HEAD + j] - stepSize * moved[AT_HEAD + j];
        if (!(Math.abs(moved[AT_HEAD + j]) <= LARGEST_PARAMETER)) finite = false;
      }
    }
    if (still) run.stalled = true;
    if (!finite) {
      run.overflowed = true;
      return;
    }
    for (let j = 0; j < used; j++) parameters[j] = moved[j];
    if (headTrained) {
      parameters[AT_HEAD] = moved[AT_HEAD];
      parameters[AT_HEAD + 1] = moved[AT_HEAD + 1];
    }
    combineWeights(run);
  }
}

/** W as a flat array, row by row; a prompt as [p1, p2]. */
export function flatWeights(run) {
  const w = run.pass.weights;
  return run.model.prompt ? [w[0], w[2]] : [w[0], w[1], w[2], w[3]];
}

/** The token each input selects after a forward pass: the most probable one; -1 for an input without tokens. */
export function selectedTokens(run) {
  const { model, pass } = run;
  const selected = new Array(model.inputs);
  for (let i = 0; i < model.inputs; i++) {
    selected[i] = model.offset[i] === model.offset[i + 1] ? -1 : pass.winner[i] - model.offset[i];
  }
  return selected;
}

/**
 * Run descent and keep the iterates asked for.
 *
 * Minimises (1/n) sum_i loss(Y_i h(X_i^T softmax(X_i W z_i))) with a gradient whose direction stays right however
 * large the weights become. Attention, weights and risk of a record are those of one iterate.
 * @param {import("./model.js").Problem} problem
 * @param {Settings} settings
 * @param {number[]} record steps to keep, ascending; the last step is always kept.
 */
export function train(problem, settings, record) {
  const model = modelOf(problem);
  const run = descentOf(model, settings);
  const total = Math.max(0, Math.min(MOST_STEPS, Math.floor(Number(settings && settings.steps)) || 0));
  const marks = recordedSteps(record, total);
  const result = {
    steps: [],
    weights: [],
    parameters: [],
    norm: [],
    risk: [],
    probability: [],
    attention: [],
    logAttention: [],
    selected: [],
    notes: [],
    stalled: false,
    overflowed: false,
  };
  let done = 0;
  for (const mark of marks) {
    advanceDescent(run, mark - done);
    done = mark;
    keepRecord(run, mark, result);
  }
  result.selected = selectedTokens(run);
  result.stalled = run.stalled;
  result.overflowed = run.overflowed;
  result.notes = notesOf(run, settings);
  for (const attention of result.attention) {
    result.probability.push(result.selected.map((token, i) => (token < 0 ? 0 : attention[i][token])));
  }
  return result;
}

function recordedSteps(record, total) {
  const marks = new Set([total]);
  for (const step of record || []) {
    if (Number.isInteger(step) && step >= 0 && step <= total) marks.add(step);
  }
  return [...marks].sort((a, b) => a - b);
}

function keepRecord(run, step, result) {
  const { model, pass, parameters } = run;
  attendForward(model, pass, run.headTrained);
  const weights = flatWeights(run);
  const attention = new Array(model.inputs);
  const logAttention = new Array(model.inputs);
  let risk = 0;
  for (let i = 0; i < model.inputs; i++) {
    const length = model.offset[i + 1] - model.offset[i];
    const logs = new Array(length);
    const chances = new Array(length);
    for (let t = 0; t < length; t++) {
      const log = logProbability(pass, i, model.offset[i] + t);
      logs[t] = Math.max(-Number.MAX_VALUE, log);
      chances[t] = Math.exp(log);
    }
    attention[i] = chances;
    logAttention[i] = logs;
    if (length > 0) risk += lossValue(run.loss, pass.margin[i]) / model.inputs;
  }
  result.steps.push(step);
  result.weights.push(weights);
  result.norm.push(euclideanLength(weights));
  result.risk.push(Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, risk)));
  result.attention.push(attention);
  result.logAttention.push(logAttention);
  result.parameters.push({
    K: run.factored ? Array.from(parameters.subarray(AT_WEIGHTS, AT_WEIGHTS + 4)) : null,
    Q: run.factored ? Array.from(parameters.subarray(AT_QUERY, AT_QUERY + 4)) : null,
    head: Array.from(parameters.subarray(AT_HEAD, AT_HEAD + 2)),
  });
}

function notesOf(run, settings) {
  const notes = [];
  if (run.stalled) {
    notes.push(
      run.factored && run.parameters.subarray(0, 8).every((entry) => entry === 0)
        ? "K and Q are both zero, a saddle that descent never leaves; start at least one elsewhere."
        : "The gradient is exactly zero: the weights stay where they are."
    );
  }
  if (run.overflowed) {
    notes.push("A step would have left the range of floating point and was not taken; a smaller step may help.");
  }
  if (run.headRefused) notes.push("Scores are given with the tokens, so the head is not trained.");
  if (run.model.prompt && settings && settings.trained === "KQ") {
    notes.push("A prompt has no key and query to train apart; p was trained.");
  }
  if (run.model.flawed) {
    notes.push("Coordinates must be finite numbers of a size from 1e-30 to 1e30; others were read as 0 or 1e30.");
  }
  return notes;
}
