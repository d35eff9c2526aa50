/**
 * The max-entry norm: a linear program in two or four unknowns, solved by the simplex method on its dual
 *
 *     max b^T lam   s.t.   sum_j |M_j| <= 1,  M = sum_k lam_k A_k,  lam >= 0,
 *
 * whose basis has one place more than W has entries. Among several optimal W the one of least Frobenius norm is taken.
 */
import { normValue } from "./norms.js";
import { euclideanLength } from "./numbers.js";
import { leastLengthPoint } from "./quadratic.js";

const SMALLEST_PIVOT = 1e-11;

/**
 * Candidates for the max-entry solution; the certificate chooses.
 * @returns {{weights: number[], multipliers: Float64Array}[]} empty where the simplex method finds no solution.
 */
export function maxEntryCandidates(rows) {
  const vertex = dualSimplex(rows);
  if (!vertex) return [];
  const shortest = shortestWithin(rows, normValue("max-entry", vertex.weights));
  return shortest ? [{ weights: shortest, multipliers: vertex.multipliers }, vertex] : [vertex];
}

/** The shortest W that satisfies the rows and keeps every |entry| <= bound. */
function shortestWithin(rows, bound) {
  const { size, count } = rows;
  const entries = new Float64Array((count + 2 * size) * size);
  const sides = new Float64Array(count + 2 * size);
  entries.set(rows.entries);
  sides.set(rows.sides);
  for (let j = 0; j < size; j++) {
    const up = count + 2 * j;
    entries[up * size + j] = 1;
    entries[(up + 1) * size + j] = -1;
    sides[up] = sides[up + 1] = -bound;
  }
  const point = leastLengthPoint(entries, sides, count + 2 * size, size);
  return point.status === "solved" ? Array.from(point.weights) : null;
}

/**
 * Columns: lam_k (A_k scaled to unit length, 0), then -e_j and +e_j that absorb M with cost 1 in the last row, and the
 * slack of the last row. Start from the absorbing columns +e_j, whose values are all zero; late rounds take the first
 * column that gains (Bland's rule), which cannot cycle.
 */
function dualSimplex(rows) {
  const { size, count } = rows;
  const height = size + 1;
  const total = count + 2 * size + 1;
  const width = total + 1;
  const lengths = new Float64Array(count);
  const columns = new Float64Array(total * height);
  const gains = new Float64Array(total);
  let scale = 0;
  for (let k = 0; k < count; k++) {
    lengths[k] = euclideanLength(rows.entries.subarray(k * size, (k + 1) * size));
    if (!(lengths[k] > 0)) continue;
    for (let j = 0; j < size; j++) columns[k * height + j] = rows.entries[k * size + j] / lengths[k];
    gains[k] = rows.sides[k] / lengths[k];
    scale = Math.max(scale, gains[k]);
  }
  if (!(scale > 0) || !Number.isFinite(scale)) return null;
  for (let k = 0; k < count; k++) gains[k] /= scale;
  const basis = [];
  for (let j = 0; j < size; j++) {
    const minus = count + 2 * j;
    columns[minus * height + j] = -1;
    columns[(minus + 1) * height + j] = 1;
    columns[minus * height + size] = columns[(minus + 1) * height + size] = 1;
    basis.push(minus + 1);
  }
  columns[(total - 1) * height + size] = 1;
  basis.push(total - 1);
  const table = new Float64Array(height * width);
  for (let c = 0; c < total; c++) {
    let cost = columns[c * height + size];
    for (let j = 0; j < size; j++) {
      table[j * width + c] = columns[c * height + j];
      cost -= columns[c * height + j];
    }
    table[size * width + c] = cost;
  }
  table[size * width + total] = 1;
  const reduced = new Float64Array(width);
  reduced.set(gains);
  for (let round = 0; round < 1000; round++) {
    const enter = enteringColumn(reduced, total, round);
    if (enter < 0) return vertexOf(rows, lengths, columns, gains, basis, scale);
    const leave = leavingRow(table, basis, enter, height, width, round);
    if (leave < 0) {
      reduced[enter] = 0; // rows that ask for 0 can grow without end, and what they seem to gain is round-off
      continue;
    }
    exchange(table, reduced, leave, enter, height, width);
    basis[leave] = enter;
  }
  return null;
}

const LATE_ROUND = 200;

function enteringColumn(reduced, total, round) {
  let enter = -1;
  let most = 1e-13;
  for (let c = 0; c < total; c++) {
    if (reduced[c] > most) {
      enter = c;
      if (round > LATE_ROUND) return enter;
      most = reduced[c];
    }
  }
  return enter;
}

/** The row of the smallest ratio; among equal ones the largest pivot, which keeps the table accurate. */
function leavingRow(table, basis, enter, height, width, round) {
  let ratio = Infinity;
  for (let r = 0; r < height; r++) {
    const pivot = table[r * width + enter];
    if (pivot > SMALLEST_PIVOT) ratio = Math.min(ratio, Math.max(0, table[r * width + width - 1]) / pivot);
  }
  let leave = -1;
  for (let r = 0; r < height; r++) {
    const pivot = table[r * width + enter];
    if (!(pivot > SMALLEST_PIVOT)) continue;
    if (Math.max(0, table[r * width + width - 1]) / pivot > ratio + 1e-13) continue;
    const better = round > LATE_ROUND ? basis[r] < basis[leave] : pivot > table[leave * width + enter];
    if (leave < 0 || better) leave = r;
  }
  return leave;
}

function exchange(table, reduced, leave, enter, height, width) {
  const pivot = table[leave * width + enter];
  for (let c = 0; c < width; c++) table[leave * width + c] /= pivot;
  for (let r = 0; r < height; r++) {
    const factor = table[r * width + enter];
    if (r === leave || factor === 0) continue;
    for (let c = 0; c < width; c++) table[r * width + c] -= factor * table[leave * width + c];
  }
  const factor = reduced[enter];
  for (let c = 0; c < width; c++) reduced[c] -= factor * table[leave * width + c];
}

/** Values and prices of the last basis, computed afresh from the columns: multipliers, and W as prices. */
function vertexOf(rows, lengths, columns, gains, basis, scale) {
  const { size, count } = rows;
  const height = size + 1;
  const matrix = (transposed) =>
    basis.map((_, r) =>
      basis.map((_, c) => (transposed ? columns[basis[r] * height + c] : columns[basis[c] * height + r]))
    );
  const unit = basis.map((_, r) => (r === size ? 1 : 0));
  const values = solvedSystem(matrix(false), unit);
  const prices = solvedSystem(matrix(true), basis.map((column) => gains[column]));
  if (!values || !prices) return null;
  const multipliers = new Float64Array(count);
  basis.forEach((column, r) => {
    if (column < count) multipliers[column] = Math.max(0, values[r]) / lengths[column];
  });
  return { weights: prices.slice(0, size).map((price) => price * scale), multipliers };
}

/** The solution of a small square system, by elimination with pivots; null where it is singular. */
export function solvedSystem(matrix, target) {
  const size = target.length;
  const rows = matrix.map((row, r) => [...row, target[r]]);
  for (let c = 0; c < size; c++) {
    let pivot = c;
    for (let r = c + 1; r < size; r++) if (Math.abs(rows[r][c]) > Math.abs(rows[pivot][c])) pivot = r;
    if (!(Math.abs(rows[pivot][c]) > 0)) return null;
    [rows[c], rows[pivot]] = [rows[pivot], rows[c]];
    for (let r = c + 1; r < size; r++) {
      const factor = rows[r][c] / rows[c][c];
      for (let j = c; j <= size; j++) rows[r][j] -= factor * rows[c][j];
    }
  }
  const solution = new Array(size).fill(0);
  for (let r = size - 1; r >= 0; r--) {
    let value = rows[r][size];
    for (let c = r + 1; c < size; c++) value -= rows[r][c] * solution[c];
    solution[r] = value / rows[r][r];
  }
  return solution;
}
