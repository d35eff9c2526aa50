/** Norms of W in the plane, 2x2 row by row or a column of two; each with its dual. */
import { euclideanLength } from "./numbers.js";

/** The norms by the names that settings use. */
export const KNOWN_NORMS = ["frobenius", "nuclear", "spectral", "max-entry"];

const DUAL_NORMS = { frobenius: "frobenius", nuclear: "spectral", spectral: "nuclear", "max-entry": "sum-entry" };
const ROOT_HALF = Math.SQRT1_2;

/**
 * Coordinates in which a 2x2 matrix is a rotation part and a reflection part, [u1, u2, v1, v2], an orthonormal change:
 * |u| = (s1 + s2) / sqrt 2 and |v| = (s1 - s2) / sqrt 2 for singular values s1 >= s2 and a positive determinant, the
 * other way round for a negative one. Hence nuclear = sqrt 2 max(|u|, |v|), spectral = (|u| + |v|) / sqrt 2.
 */
export function toRotationReflection(w, at, target, to) {
  target[to] = (w[at] + w[at + 3]) * ROOT_HALF;
  target[to + 1] = (w[at + 1] - w[at + 2]) * ROOT_HALF;
  target[to + 2] = (w[at] - w[at + 3]) * ROOT_HALF;
  target[to + 3] = (w[at + 1] + w[at + 2]) * ROOT_HALF;
}

/** Back from rotation and reflection parts to the entries. */
export function fromRotationReflection(r) {
  return [(r[0] + r[2]) * ROOT_HALF, (r[1] + r[3]) * ROOT_HALF, (r[3] - r[1]) * ROOT_HALF, (r[0] - r[2]) * ROOT_HALF];
}

/** The value of a norm; of a vector of two, nuclear and spectral are its length. */
export function normValue(name, w) {
  if (name === "max-entry") return w.reduce((most, entry) => Math.max(most, Math.abs(entry)), 0);
  if (name === "sum-entry") return w.reduce((sum, entry) => sum + Math.abs(entry), 0);
  if (name === "frobenius" || w.length !== 4) return euclideanLength(w);
  const parts = new Float64Array(4);
  toRotationReflection(w, 0, parts, 0);
  const rotation = euclideanLength(parts.subarray(0, 2));
  const reflection = euclideanLength(parts.subarray(2, 4));
  return name === "nuclear" ? Math.SQRT2 * Math.max(rotation, reflection) : (rotation + reflection) * ROOT_HALF;
}

/** The value of the dual norm. */
export function dualNormValue(name, w) {
  return normValue(DUAL_NORMS[name], w);
}
