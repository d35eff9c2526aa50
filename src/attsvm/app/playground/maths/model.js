/** The problem as typed arrays, and what its tokens are worth. */
import { usableNumber } from "./numbers.js";

/**
 * @typedef {{x: number[], score: number|null}} Token
 * @typedef {{label: number, query: number[]|null, tokens: Token[]}} Input
 * @typedef {{kind: "prompt"|"matrix", head: number[], inputs: Input[]}} Problem
 */

/**
 * Lay a problem out for the loops: tokens of all inputs one after the other, input i from offset[i] to offset[i + 1].
 *
 * A prompt is the matrix case with query (1, 0): its second column is never read and its gradient is exactly zero, so
 * one set of loops serves both. `flawed` says that some number had to be read as another (`usableNumber`).
 * @param {Problem} problem
 */
export function modelOf(problem) {
  const given = problem && Array.isArray(problem.inputs) ? problem.inputs : [];
  const prompt = !problem || problem.kind !== "matrix";
  const count = given.length;
  const offset = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) offset[i + 1] = offset[i] + tokensOfInput(given[i]).length;
  const total = offset[count];
  const model = {
    prompt,
    size: prompt ? 2 : 4,
    inputs: count,
    total,
    offset,
    tokens: new Float64Array(2 * total),
    queries: new Float64Array(2 * count),
    labels: new Float64Array(count),
    values: new Float64Array(total),
    scores: new Float64Array(total),
    head: new Float64Array(2),
    explicit: false,
    flawed: false,
  };
  const read = (value) => {
    const number = usableNumber(value);
    if (number !== value) model.flawed = true;
    return number;
  };
  model.head.set(pairOf(problem && problem.head, read));
  for (let i = 0; i < count; i++) {
    const query = prompt ? [1, 0] : pairOf(given[i].query, read);
    model.queries.set(query, 2 * i);
    model.labels[i] = given[i].label < 0 ? -1 : 1;
    tokensOfInput(given[i]).forEach((token, t) => {
      const k = offset[i] + t;
      const [x, y] = pairOf(token.x, read);
      model.tokens[2 * k] = x;
      model.tokens[2 * k + 1] = y;
      const fixed = token.score !== null && token.score !== undefined;
      if (fixed) model.explicit = true;
      model.values[k] = fixed ? read(token.score) : x * model.head[0] + y * model.head[1];
      model.scores[k] = model.labels[i] * model.values[k];
    });
  }
  return model;
}

function tokensOfInput(input) {
  return input && Array.isArray(input.tokens) ? input.tokens : [];
}

function pairOf(values, read) {
  return Array.isArray(values) || ArrayBuffer.isView(values) ? [read(values[0]), read(values[1])] : [0, 0];
}

/** A selection as whole numbers within each input; what does not fit becomes token 0, an input without tokens -1. */
export function usableSelection(model, selected) {
  const chosen = new Array(model.inputs);
  for (let i = 0; i < model.inputs; i++) {
    const length = model.offset[i + 1] - model.offset[i];
    const wanted = Number(selected && selected[i]);
    chosen[i] = length === 0 ? -1 : Number.isInteger(wanted) && wanted >= 0 && wanted < length ? wanted : 0;
  }
  return chosen;
}

/** One number for each token, as [input][token]. */
export function nestedByInput(model, flat) {
  const nested = new Array(model.inputs);
  for (let i = 0; i < model.inputs; i++) {
    nested[i] = Array.from(flat.subarray(model.offset[i], model.offset[i + 1]));
  }
  return nested;
}

/** W z of flat weights; a prompt's is p itself, whatever the query. */
export function imageOf(weights, query) {
  if (weights.length === 2) return weights;
  return [weights[0] * query[0] + weights[1] * query[1], weights[2] * query[0] + weights[3] * query[1]];
}

/** Token scores gamma_it = Y_i v^T x_it (or Y_i times the score given), [input][token]. */
export function scores(problem) {
  const model = modelOf(problem);
  return nestedByInput(model, model.scores);
}

/** The difference below which two scores of input i count as tied: 1e-12 of its largest score. */
export function scoreTieLine(model, i) {
  let largest = 0;
  for (let k = model.offset[i]; k < model.offset[i + 1]; k++) largest = Math.max(largest, Math.abs(model.scores[k]));
  return 1e-12 * largest;
}

/**
 * The highest-scoring token of each input (the first of several), and where it is not the only one.
 * @returns {{tokens: number[], tied: boolean[]}} token -1 for an input without tokens.
 */
export function optimalTokens(problem) {
  return optimalTokensOf(modelOf(problem));
}

/** `optimalTokens` of a model. */
export function optimalTokensOf(model) {
  const tokens = [];
  const tied = [];
  for (let i = 0; i < model.inputs; i++) {
    let best = -1;
    for (let k = model.offset[i]; k < model.offset[i + 1]; k++) {
      if (best < 0 || model.scores[k] > model.scores[best]) best = k;
    }
    const line = scoreTieLine(model, i);
    let equal = 0;
    for (let k = model.offset[i]; k < model.offset[i + 1]; k++) {
      if (model.scores[k] >= model.scores[best] - line) equal++;
    }
    tokens.push(best < 0 ? -1 : best - model.offset[i]);
    tied.push(equal > 1);
  }
  return { tokens, tied };
}
