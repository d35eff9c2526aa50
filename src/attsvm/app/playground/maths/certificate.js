/** Proof of optimality, and rays of floating point, from rows, weights and multipliers alone. */
import { dualNormValue, normValue } from "./norms.js";
import { combinedRows, rowMargin } from "./rows.js";
import { euclideanLength } from "./numbers.js";

/** A pair counts as proved optimal within this relative gap, a ray within this residual. */
export const PROOF_TOLERANCE = 1e-8;
const RAY_TOLERANCE = 1e-10;

/**
 * What weights and multipliers prove.
 * @returns {{value: number, gap: number, violation: number, optimal: boolean, duals: Float64Array}} value: N(W); gap:
 *   how far N(W), scaled to feasibility, lies above the dual bound b^T lam / N°(sum lam_k A_k), relative to it; duals:
 *   the multipliers of the norm form, N°(sum lam_k A_k) = 1.
 */
export function certifySolution(rows, norm, weights, multipliers) {
  const value = normValue(norm, weights);
  const duals = Float64Array.from(multipliers, (entry) => Math.max(0, entry));
  const size = dualNormValue(norm, combinedRows(rows, duals));
  let reward = 0;
  let violation = 0;
  let smallest = Infinity;
  let scalable = true;
  for (let k = 0; k < rows.count; k++) {
    const side = rows.sides[k];
    const margin = rowMargin(rows, k, weights);
    reward += duals[k] * side;
    violation = Math.max(violation, (side - margin) / (1 + Math.abs(side)));
    if (side > 0) smallest = Math.min(smallest, margin / side);
    if (side < 0) scalable = false;
  }
  if (size > 0) for (let k = 0; k < rows.count; k++) duals[k] /= size;
  const bound = reward > 0 && size > 0 ? reward / size : 0;
  const stretched = scalable && smallest > 0 && smallest < 1 ? value / smallest : value;
  let gap = Infinity;
  if (smallest === Infinity && value === 0) gap = 0;
  else if (smallest > 0 && bound > 0) gap = (stretched - bound) / bound;
  const proved = Math.abs(gap) <= PROOF_TOLERANCE && violation <= PROOF_TOLERANCE;
  return { value, gap: Number.isFinite(gap) ? gap : Number.MAX_VALUE, violation, optimal: proved, duals };
}

/**
 * Whether multipliers are a ray as far as floating point can tell: sum_k lam_k A_k is round-off while b^T lam > 0.
 * @returns {{ray: Float64Array|null, left: Float64Array}} the ray, scaled so that b^T lam = 1, or null where it is none;
 *   what is left of the sum. Weights that separate have a norm of at least 1 / N°(left).
 */
export function nearRay(rows, multipliers) {
  let reward = 0;
  let earned = 0;
  let weight = 0;
  for (let k = 0; k < rows.count; k++) {
    const gain = multipliers[k] * rows.sides[k];
    reward += gain;
    if (gain > 0) {
      earned += gain;
      weight += multipliers[k] * euclideanLength(rows.entries.subarray(k * rows.size, (k + 1) * rows.size));
    }
  }
  const left = combinedRows(rows, multipliers);
  if (!(reward > 0) || euclideanLength(left) > RAY_TOLERANCE * weight * (reward / earned)) return { ray: null, left };
  return { ray: multipliers.map((entry) => entry / reward), left: left.map((entry) => entry / reward) };
}
