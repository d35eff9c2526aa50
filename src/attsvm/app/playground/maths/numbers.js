/** Small helpers of the arithmetic: safe numbers, lengths, logarithms that do not overflow. */

/** Coordinates and step sizes are held within these sizes, so that no product of the loops overflows or vanishes. */
export const LARGEST_COORDINATE = 1e30;
export const SMALLEST_COORDINATE = 1e-30;

/** Parameters that would grow beyond this size count as out of range; a run stops before. */
export const LARGEST_PARAMETER = 1e60;

/** A number as it may enter the arithmetic: finite, and zero or between the two sizes above. */
export function usableNumber(value) {
  const number = Number(value);
  if (!Number.isFinite(number) || Math.abs(number) < SMALLEST_COORDINATE) return 0;
  return Math.max(-LARGEST_COORDINATE, Math.min(LARGEST_COORDINATE, number));
}

/** log(1 / (1 + exp(-x))), exact in both tails. */
export function logSigmoid(x) {
  return Math.min(0, x) - Math.log1p(Math.exp(-Math.abs(x)));
}

/** Euclidean length of a list of numbers, without overflow or underflow of the squares. */
export function euclideanLength(values) {
  let largest = 0;
  for (let j = 0; j < values.length; j++) largest = Math.max(largest, Math.abs(values[j]));
  if (!(largest > 0)) return 0;
  let sum = 0;
  for (let j = 0; j < values.length; j++) {
    const unit = values[j] / largest;
    sum += unit * unit;
  }
  return Math.sqrt(sum) * largest;
}

/** sum_j a_j b_j. */
export function innerProduct(a, b) {
  let sum = 0;
  for (let j = 0; j < a.length; j++) sum += a[j] * b[j];
  return sum;
}

/**
 * Cosine of the angle between two flat arrays (the papers' correlation coefficient).
 * @returns {number|null} null where one of them is zero or missing: a zero vector has no direction.
 */
export function directionCosine(a, b) {
  if (!a || !b || a.length !== b.length) return null;
  const first = euclideanLength(a);
  const second = euclideanLength(b);
  if (!(first > 0) || !(second > 0) || !Number.isFinite(first) || !Number.isFinite(second)) return null;
  let sum = 0;
  for (let j = 0; j < a.length; j++) sum += (a[j] / first) * (b[j] / second);
  return Math.max(-1, Math.min(1, sum));
}
