/** Max-margin solutions in the plane: of a selection of tokens in any norm, and of the labels. */
import { balancedCandidates } from "./balance.js";
import { certifySolution, nearRay } from "./certificate.js";
import { exactlyInfeasible } from "./exact.js";
import { maxEntryCandidates } from "./linear.js";
import { modelOf, nestedByInput, usableSelection } from "./model.js";
import { dualNormValue, KNOWN_NORMS } from "./norms.js";
import { leastLengthPoint } from "./quadratic.js";
import { constraintRows, marginsByInput, plainRows } from "./rows.js";

/** Rows with a margin up to this much above their right-hand side are support rows, as in Python. */
export const SUPPORT_TOLERANCE = 1e-6;

/**
 * Solve rows in a norm; never throws.
 * @returns {{status: "solved"|"infeasible"|"not found"|"unproved"|"nothing", weights: number[],
 *            multipliers: Float64Array, gap: number, value: number}} multipliers: duals of the norm form, or the ray
 *   where infeasible (proved in exact arithmetic) or where no weights were found; then `value` is a norm that any
 *   separating weights exceed, as far as floating point can tell.
 */
export function solveRows(rows, norm) {
  const nothing = { status: "nothing", weights: new Array(rows.size).fill(0), gap: 0, value: 0 };
  nothing.multipliers = new Float64Array(rows.count);
  if (!rows.sides.some((side) => side > 0)) return nothing;
  const shortest = leastLengthPoint(rows.entries, rows.sides, rows.count, rows.size);
  if (shortest.status === "infeasible") {
    const { ray, left } = nearRay(rows, shortest.multipliers);
    if (ray && exactlyInfeasible(rows, shortest.active)) return { ...nothing, status: "infeasible", multipliers: ray };
    const value = ray ? 1 / dualNormValue(norm, left) : 0;
    if (ray) return { ...nothing, status: "not found", multipliers: ray, value: Math.min(value, Number.MAX_VALUE) };
  }
  let candidates = [{ weights: Array.from(shortest.weights), multipliers: shortest.multipliers }];
  const square = rows.size === 4;
  // The shortest point comes first: where it is optimal in the spectral norm too it is the one of several to show.
  if (square && (norm === "nuclear" || norm === "spectral")) candidates.push(...balancedCandidates(rows, norm));
  if (norm === "max-entry") candidates = maxEntryCandidates(rows);
  let best = null;
  for (const { weights, multipliers } of candidates) {
    if (!weights.every(Number.isFinite)) continue;
    const proof = certifySolution(rows, norm, weights, multipliers);
    const error = Math.max(Math.abs(proof.gap), proof.violation);
    if (best === null || error < best.error) {
      const status = proof.optimal ? "solved" : "unproved";
      best = { status, weights, multipliers: proof.duals, gap: proof.gap, value: proof.value, error };
    }
    if (error <= 1e-12) break;
  }
  return best || { ...nothing, status: "unproved", gap: Number.MAX_VALUE };
}

/**
 * W_mm(selected) = argmin N(W) s.t. (x_i,selected - x_it)^T W z_i >= b_i for every other token t, with its proof.
 *
 * status "solved": `gap` is the relative duality gap; "infeasible": it is proved in exact arithmetic that no weights
 * separate the selection, `duals` are the ray; "not found": floating point finds a ray, so that weights that separate
 * would be very large, but none was proved; "degenerate": nothing is asked (one token an input), or nothing could be proved.
 * @param {import("./model.js").Problem} problem
 * @param {number[]} selected one token an input.
 * @param {{norm?: string, rightHandSide?: number[]|null}} options norm: frobenius (default), nuclear, spectral or
 *   max-entry; rightHandSide: one number an input, default 1.
 */
export function maxMargin(problem, selected, options) {
  return maxMarginOf(modelOf(problem), selected, options);
}

/** `maxMargin` of a model. */
export function maxMarginOf(model, selected, options) {
  const given = options || {};
  const norm = KNOWN_NORMS.includes(given.norm) ? given.norm : "frobenius";
  const chosen = usableSelection(model, selected);
  const rows = constraintRows(model, chosen, given.rightHandSide || null, null);
  const solved = solveRows(rows, norm);
  const duals = new Float64Array(model.total);
  for (let k = 0; k < rows.count; k++) duals[model.offset[rows.inputs[k]] + rows.tokens[k]] = solved.multipliers[k];
  const result = {
    status: ["solved", "infeasible", "not found"].includes(solved.status) ? solved.status : "degenerate",
    weights: null,
    norm: 0,
    margins: null,
    support: [],
    duals: nestedByInput(model, duals),
    gap: solved.gap,
    selected: chosen,
    sentence: "",
  };
  if (solved.status === "infeasible") {
    result.sentence = infeasibleSentence(model, chosen, rows);
    return result;
  }
  if (solved.status === "not found") {
    result.sentence =
      `No separating weights found: any would have a norm of about ${solved.value.toExponential(0)} or more. ` +
      "That there are none at all is not proved.";
    return result;
  }
  result.weights = solved.weights;
  result.norm = solved.value;
  result.margins = marginsByInput(model, chosen, solved.weights);
  if (solved.status === "nothing") {
    result.sentence =
      rows.count === 0
        ? "Every input has one token: there is nothing to separate, and the solution is zero."
        : "No row asks for a margin: the solution is zero.";
    return result;
  }
  if (solved.status !== "solved") {
    result.sentence =
      "Neither a solution nor its absence could be proved here: the tokens are too close to a degenerate position.";
    return result;
  }
  for (let k = 0; k < rows.count; k++) {
    const margin = result.margins[rows.inputs[k]][rows.tokens[k]];
    if (margin <= rows.sides[k] + SUPPORT_TOLERANCE) result.support.push([rows.inputs[k], rows.tokens[k]]);
  }
  const plural = result.support.length === 1 ? "" : "s";
  result.sentence = `Solved: duality gap ${shownGap(solved.gap)}, ${result.support.length} support token${plural}.`;
  return result;
}

/** A gap for reading; below the rounding of its own computation it is said to be below it. */
function shownGap(gap) {
  return Math.abs(gap) < 1e-15 ? "below 1e-15" : Math.abs(gap).toExponential(0);
}

function infeasibleSentence(model, chosen, rows) {
  for (let k = 0; k < rows.count; k++) {
    if (!(rows.sides[k] > 0)) continue;
    if (rows.entries.subarray(k * rows.size, (k + 1) * rows.size).some((entry) => entry !== 0)) continue;
    const i = rows.inputs[k];
    if (model.queries[2 * i] === 0 && model.queries[2 * i + 1] === 0) {
      return `Infeasible: the query of input ${i} is zero, so all its tokens get the same attention.`;
    }
    return (
      `Infeasible: tokens ${chosen[i]} and ${rows.tokens[k]} of input ${i} lie on top of each other, ` +
      "so no weights tell them apart."
    );
  }
  return "Infeasible: no weights separate this selection; the multipliers of its rows prove it.";
}

/**
 * v_mm = argmin |v| s.t. Y_i v^T x_i,selected >= 1, the head that joint training tends to, and its support inputs.
 * @returns {{status: string, head: number[]|null, supportInputs: number[], margins: number[]|null, gap: number,
 *            sentence: string}}
 */
export function labelMargin(problem, selected) {
  return labelMarginOf(modelOf(problem), selected);
}

/** `labelMargin` of a model. */
export function labelMarginOf(model, selected) {
  const result = { status: "degenerate", head: null, supportInputs: [], margins: null, gap: 0, sentence: "" };
  if (model.explicit) {
    result.sentence = "Scores are given with the tokens, so there is no head to separate the labels.";
    return result;
  }
  const chosen = usableSelection(model, selected);
  const inputs = chosen.map((_, i) => i).filter((i) => chosen[i] >= 0);
  const vectors = inputs.map((i) => {
    const k = model.offset[i] + chosen[i];
    return [model.labels[i] * model.tokens[2 * k], model.labels[i] * model.tokens[2 * k + 1]];
  });
  const rows = plainRows(2, vectors, new Array(inputs.length).fill(1));
  const solved = solveRows(rows, "frobenius");
  if (solved.status === "infeasible") {
    return { ...result, status: "infeasible", sentence: "No head separates the labels of the selected tokens." };
  }
  if (solved.status === "not found") {
    return { ...result, status: "not found", sentence: "No head was found that separates the labels; none is ruled out." };
  }
  if (solved.status !== "solved") {
    return { ...result, sentence: "No label margin could be proved here.", gap: solved.gap };
  }
  const margins = new Array(model.inputs).fill(1);
  inputs.forEach((i, j) => (margins[i] = vectors[j][0] * solved.weights[0] + vectors[j][1] * solved.weights[1]));
  return {
    status: "solved",
    head: solved.weights,
    supportInputs: inputs.filter((i) => margins[i] <= 1 + SUPPORT_TOLERANCE),
    margins,
    gap: solved.gap,
    sentence: `Label margin solved: duality gap ${shownGap(solved.gap)}.`,
  };
}
