/** Which selections attention can be attracted to: local optimality, and the list of all that are. */
import { SUPPORT_TOLERANCE, maxMarginOf, solveRows } from "./margin.js";
import { modelOf, scoreTieLine } from "./model.js";
import { KNOWN_NORMS, normValue } from "./norms.js";
import { constraintRows, rowMargin } from "./rows.js";

/**
 * Whether every selected token out-scores its support tokens; ties count as violations, and a selection that no weights
 * separate is not locally optimal.
 * @param {import("./model.js").Problem} problem
 * @param {number[]} selected
 * @param {{norm?: string}} options
 * @returns {{answer: boolean, violations: number[][], status: string, sentence: string}}
 */
export function isLocallyOptimal(problem, selected, options) {
  const model = modelOf(problem);
  const solution = maxMarginOf(model, selected, { norm: options && options.norm });
  if (solution.weights === null || (solution.status === "degenerate" && solution.gap > 0)) {
    return { answer: false, violations: [], status: solution.status, sentence: solution.sentence };
  }
  const violations = solution.support.filter(([i, t]) => outscores(model, i, solution.selected[i], t));
  const named = violations.map(([i, t]) => `token ${t} of input ${i}`).join(", ");
  return {
    answer: violations.length === 0,
    violations,
    status: solution.status,
    sentence: violations.length
      ? `Not locally optimal: support tokens score at least as high as the selected ones: ${named}.`
      : "Locally optimal: every selected token out-scores its support tokens.",
  };
}

/** Whether token t scores at least as high as token `own` of input i, ties within round-off included. */
function outscores(model, i, own, t) {
  const first = model.offset[i];
  return model.scores[first + t] >= model.scores[first + own] - scoreTieLine(model, i);
}

/**
 * Every locally optimal selection, by exact enumeration: a selection is locally optimal iff the problem with the rows
 * of lower-scoring tokens only has a solution at which all other margins exceed 1. Selections whose first inputs cannot
 * be separated are cut together. Higher-scoring tokens are tried first, so that the optimal selection always is.
 * @param {import("./model.js").Problem} problem
 * @param {{norm?: string, limit?: number}} options limit: most selections put to the test (default 2000).
 * @returns {{selections: {selected: number[], weights: number[], norm: number, isGlobal: boolean}[], tried: number,
 *            complete: boolean}} by growing norm; `complete` is false where the limit ended the search, or a solve
 *            proved nothing.
 */
export function localOptima(problem, options) {
  const model = modelOf(problem);
  const given = options || {};
  const norm = KNOWN_NORMS.includes(given.norm) ? given.norm : "frobenius";
  const limit = Number.isFinite(given.limit) ? Math.max(1, Math.floor(given.limit)) : 2000;
  const result = { selections: [], tried: 0, complete: true };
  if (model.inputs === 0) return result;
  const orders = tokensByScore(model);
  const selected = new Array(model.inputs).fill(-1);
  let solves = 0;

  function descend(i) {
    if (i === model.inputs) {
      result.tried++;
      const found = testedSelection(model, selected, norm, orders.best);
      if (found === "unproved") result.complete = false;
      else if (found) result.selections.push(found);
      return;
    }
    for (const token of orders.tokens[i]) {
      if (result.tried >= limit || solves >= 4 * limit) {
        result.complete = false;
        break;
      }
      selected[i] = token;
      solves++;
      const whole = i === model.inputs - 1;
      if (whole || solveRows(constraintRows(model, selected, null, null), "frobenius").status !== "infeasible") {
        descend(i + 1);
      }
    }
    selected[i] = -1;
  }

  descend(0);
  result.selections.sort((a, b) => a.norm - b.norm);
  return result;
}

/** Token indices of each input, highest score first, and how many share the best score; -1 stands for no token. */
function tokensByScore(model) {
  const tokens = [];
  const best = [];
  for (let i = 0; i < model.inputs; i++) {
    const first = model.offset[i];
    const order = Array.from({ length: model.offset[i + 1] - first }, (_, t) => t);
    order.sort((a, b) => model.scores[first + b] - model.scores[first + a] || a - b);
    best.push(order.length ? model.scores[first + order[0]] : 0);
    tokens.push(order.length ? order : [-1]);
  }
  return { tokens, best };
}

function testedSelection(model, selected, norm, best) {
  const lower = (i, t) => !outscores(model, i, selected[i], t);
  const solved = solveRows(constraintRows(model, selected, null, lower), norm);
  if (solved.status === "infeasible") return null;
  if (solved.status === "unproved" || solved.status === "not found") return "unproved";
  const others = constraintRows(model, selected, null, (i, t) => !lower(i, t));
  for (let k = 0; k < others.count; k++) {
    if (rowMargin(others, k, solved.weights) - 1 <= SUPPORT_TOLERANCE) return null;
  }
  return {
    selected: [...selected],
    weights: [...solved.weights],
    norm: normValue(norm, solved.weights),
    isGlobal: selected.every((t, i) => t < 0 || model.scores[model.offset[i] + t] >= best[i] - scoreTieLine(model, i)),
  };
}
