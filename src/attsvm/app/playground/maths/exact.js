/** Proof of infeasibility in exact arithmetic: numbers of the problem as integers, without any rounding. */
import { LARGEST_COORDINATE } from "./numbers.js";

/** Coordinates are 0 or at least 1e-30 in size, so their last bit is worth at least 2^-152: this times them is whole. */
const SCALE = 2 ** 160;

/**
 * The row (a - b) z^T as integers: exactly SCALE^2 times the row.
 * @param {number[][]} pairs a and b of each coordinate.
 * @param {ArrayLike<number>} query z.
 * @returns {BigInt[]} row by row.
 */
export function exactRow(pairs, query) {
  const scaled = Array.from(query, whole);
  return pairs.flatMap(([a, b]) => scaled.map((z) => (whole(a) - whole(b)) * z));
}

function whole(number) {
  return BigInt(number * SCALE);
}

/**
 * Whether some lam >= 0 on the rows `active` has sum_k lam_k A_k = 0 and b^T lam > 0 exactly: then no weights at all
 * meet these rows. The solver hands over independent rows and one that depends on them, so one lam is to be judged.
 * @param {number[]} active at most one row more than there are unknowns.
 */
export function exactlyInfeasible(rows, active) {
  const lam = nullVector(active.map((k) => rows.exact[k]()), rows.size);
  if (lam === null || lam.some((entry) => entry < 0n)) return false;
  let earned = 0n;
  for (let j = 0; j < active.length; j++) {
    const side = rows.sides[active[j]];
    if (!(side >= -LARGEST_COORDINATE)) return false;
    // Rounded down: what is earned is at least this.
    earned += lam[j] * BigInt(Math.floor(Math.min(side, LARGEST_COORDINATE) * SCALE));
  }
  return earned > 0n;
}

/** x with sum_k x_k vectors_k = 0 by fraction-free elimination (Bareiss); null unless it is unique up to a factor. */
function nullVector(vectors, size) {
  const count = vectors.length;
  const equations = Array.from({ length: size }, (_, j) => vectors.map((vector) => vector[j]));
  const pivots = [];
  let free = -1;
  let before = 1n;
  for (let c = 0; c < count; c++) {
    const r = pivots.length;
    const place = equations.findIndex((equation, e) => e >= r && equation[c] !== 0n);
    if (place < 0) {
      if (free >= 0) return null;
      free = c;
      continue;
    }
    [equations[r], equations[place]] = [equations[place], equations[r]];
    const top = equations[r];
    const pivot = top[c];
    for (let e = 0; e < size; e++) {
      if (e === r) continue;
      const factor = equations[e][c];
      equations[e] = equations[e].map((entry, k) => (pivot * entry - factor * top[k]) / before);
    }
    before = pivot;
    pivots.push(c);
  }
  if (free < 0) return null;
  const sign = before < 0n ? -1n : 1n;
  const found = new Array(count).fill(0n);
  found[free] = sign * before;
  pivots.forEach((c, r) => (found[c] = -sign * equations[r][free]));
  return found;
}
