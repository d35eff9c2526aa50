/** One step of each optimizer on one parameter, given its gradient as mantissa and log-scale. */

/** Optimizers by number, for the loops. */
export const OPTIMIZER_ORDER = ["gradient", "normalized", "sign", "spectral"];

const LOG_LARGEST = Math.log(Number.MAX_VALUE);
const NEGLIGIBLE_RATIO = 2 * 2.220446049250313e-16;

/**
 * Write into `target[at..at + count]` the step direction D of the optimizer: the parameter moves by -stepSize D.
 *
 * gradient: the gradient at its true size; normalized: of Frobenius norm 1; sign: sign(G); spectral: the polar factor
 * U V^T of a 2x2 gradient (of a vector, the normalized one). A zero gradient gives a zero direction.
 */
export function writeDirection(optimizer, gradient, from, count, scale, target, at) {
  let largest = 0;
  for (let j = 0; j < count; j++) largest = Math.max(largest, Math.abs(gradient[from + j]));
  if (optimizer === 0) {
    // Half of the scale at a time, so that a large mantissa meets a small scale without underflow on the way.
    const half = Math.exp(Math.min(scale / 2, LOG_LARGEST));
    for (let j = 0; j < count; j++) {
      const size = gradient[from + j] * half * half;
      target[at + j] = Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, size));
    }
    return;
  }
  if (!(largest > 0)) {
    for (let j = 0; j < count; j++) target[at + j] = 0;
    return;
  }
  if (optimizer === 2) {
    for (let j = 0; j < count; j++) target[at + j] = Math.sign(gradient[from + j]);
    return;
  }
  if (optimizer === 3 && count === 4) {
    const a = gradient[from] / largest;
    const b = gradient[from + 1] / largest;
    const c = gradient[from + 2] / largest;
    const d = gradient[from + 3] / largest;
    // A 2x2 matrix is a multiple of a rotation plus a multiple of a reflection, of lengths s1 + s2 and s1 - s2 (for a
    // positive determinant); the polar factor is the larger part made orthogonal.
    const determinant = determinantOf(a, b, c, d);
    const rotation = Math.sqrt((a + d) * (a + d) + (b - c) * (b - c));
    const reflection = Math.sqrt((a - d) * (a - d) + (b + c) * (b + c));
    const first = (rotation + reflection) / 2;
    const second = Math.abs(determinant) / first;
    if (second <= NEGLIGIBLE_RATIO * first) {
      target[at] = a / first;
      target[at + 1] = b / first;
      target[at + 2] = c / first;
      target[at + 3] = d / first;
    } else if (determinant > 0) {
      target[at] = target[at + 3] = (a + d) / rotation;
      target[at + 1] = (b - c) / rotation;
      target[at + 2] = (c - b) / rotation;
    } else {
      target[at] = (a - d) / reflection;
      target[at + 3] = (d - a) / reflection;
      target[at + 1] = target[at + 2] = (b + c) / reflection;
    }
    return;
  }
  let sum = 0;
  for (let j = 0; j < count; j++) {
    const unit = gradient[from + j] / largest;
    sum += unit * unit;
  }
  const norm = Math.sqrt(sum) * largest;
  for (let j = 0; j < count; j++) target[at + j] = gradient[from + j] / norm;
}

/** a d - b c with the rounding errors of both products added back. */
export function determinantOf(a, b, c, d) {
  const first = a * d;
  const second = b * c;
  return first - second + (productError(a, d, first) - productError(b, c, second));
}

const DEKKER_SPLITTER = 134217729; // 2^27 + 1 (Dekker, 1971)

function productError(x, y, product) {
  const bigX = DEKKER_SPLITTER * x;
  const highX = bigX - (bigX - x);
  const lowX = x - highX;
  const bigY = DEKKER_SPLITTER * y;
  const highY = bigY - (bigY - y);
  const lowY = y - highY;
  return lowX * lowY - (product - highX * highY - lowX * highY - highX * lowY);
}
