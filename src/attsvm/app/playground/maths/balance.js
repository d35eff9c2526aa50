/**
 * Nuclear and spectral norm of 2x2 matrices, solved through least-length points.
 *
 * In rotation and reflection parts (u, v) the nuclear norm is sqrt 2 max(|u|, |v|) and the spectral norm
 * (|u| + |v|) / sqrt 2. Let w(tau) minimise e^(tau/2) |u|^2 + e^(-tau/2) |v|^2 under the rows: one least-length point
 * in scaled coordinates, |u| falling and |v| growing in tau. Since
 *
 *     max(|u|^2, |v|^2) = max over t in [0, 1] of  t |u|^2 + (1 - t) |v|^2,
 *     (|u| + |v|)^2     = min over t in (0, 1) of  |u|^2 / t + |v|^2 / (1 - t),
 *
 * the nuclear solution is the w(tau) with |u| = |v|, and the spectral one that with e^(tau/2) |u| = e^(-tau/2) |v|: a
 * search for one number. Where the balance lies at infinity the smaller part does not count any more (nuclear) or
 * vanishes (spectral), and a problem in one part alone remains.
 */
import { fromRotationReflection, toRotationReflection } from "./norms.js";
import { leastLengthPoint } from "./quadratic.js";

// Beyond these the scaled rows lose too many digits; the limit problems take over.
const FAR_TILT = 16;
const FARTHEST_TILT = 24;

/** Rows in rotation and reflection coordinates. */
function rotatedEntries(rows) {
  const entries = new Float64Array(rows.entries.length);
  for (let k = 0; k < rows.count; k++) toRotationReflection(rows.entries, 4 * k, entries, 4 * k);
  return entries;
}

/** w(tau): weights in (u, v), multipliers, and the lengths of both parts. */
function tiltedPoint(rows, rotated, tau) {
  const forward = Math.exp(-tau / 4);
  const backward = Math.exp(tau / 4);
  const entries = new Float64Array(rotated.length);
  for (let j = 0; j < rotated.length; j += 4) {
    entries[j] = rotated[j] * forward;
    entries[j + 1] = rotated[j + 1] * forward;
    entries[j + 2] = rotated[j + 2] * backward;
    entries[j + 3] = rotated[j + 3] * backward;
  }
  const point = leastLengthPoint(entries, rows.sides, rows.count, 4);
  const w = point.weights;
  w[0] *= forward;
  w[1] *= forward;
  w[2] *= backward;
  w[3] *= backward;
  point.rotation = Math.hypot(w[0], w[1]);
  point.reflection = Math.hypot(w[2], w[3]);
  return point;
}

/** Positive while tau must grow: the rotation part is still too long (nuclear), its multiplier too short (spectral). */
function imbalance(norm, point, tau) {
  const lead = Math.log(Math.max(point.rotation, 1e-300)) - Math.log(Math.max(point.reflection, 1e-300));
  return norm === "nuclear" ? lead : -(lead + tau);
}

/**
 * Candidates for the solution in the nuclear or spectral norm, best first guess first; the certificate chooses.
 * @returns {{weights: number[], multipliers: Float64Array}[]} empty where the rows have no solution.
 */
export function balancedCandidates(rows, norm) {
  const rotated = rotatedEntries(rows);
  const evaluated = (tau) => {
    const point = tiltedPoint(rows, rotated, tau);
    return { tau, point, side: point.status === "solved" ? imbalance(norm, point, tau) : NaN };
  };
  const low = evaluated(-FAR_TILT);
  const high = evaluated(FAR_TILT);
  if (Number.isNaN(low.side) || Number.isNaN(high.side)) return [];
  if (low.side <= 0) return limitCandidates(rows, rotated, norm, -1, low.point);
  if (high.side >= 0) return limitCandidates(rows, rotated, norm, 1, high.point);
  return [asCandidate(balancePoint(evaluated, low, high))];
}

/**
 * Search for the zero of a falling function between `low` and `high`. It is smooth between kinks, and symmetric
 * problems have a kink exactly at the zero; so chords across the bracket take turns with extrapolations from either
 * side, which a kink does not slow down, and with bisections, which always work.
 */
function balancePoint(evaluated, low, high) {
  const left = [low];
  const right = [high];
  let best = Math.abs(low.side) < Math.abs(high.side) ? low : high;
  for (let round = 0; round < 240 && Math.abs(best.side) > 2e-16; round++) {
    const [a, b] = [left[0], right[0]];
    let tau = (a.tau + b.tau) / 2;
    if (!(tau > a.tau && tau < b.tau)) break;
    const ends = [[a, b], left, right, []][round % 4];
    if (ends.length === 2) tau = zeroOfChord(ends[0], ends[1]);
    else if (round % 4 < 3) continue;
    if (!(tau > a.tau && tau < b.tau)) continue;
    const next = evaluated(tau);
    if (Number.isNaN(next.side)) break;
    if (Math.abs(next.side) < Math.abs(best.side)) best = next;
    const own = next.side > 0 ? left : right;
    own.unshift(next);
    own.length = 2;
  }
  return best.point;
}

function zeroOfChord(first, second) {
  return (first.tau * second.side - second.tau * first.side) / (second.side - first.side);
}

function asCandidate(point) {
  return { weights: fromRotationReflection(point.weights), multipliers: point.multipliers };
}

/** The balance lies beyond tau = side * FAR_TILT: solve the limit problem, with tau far out as a second candidate. */
function limitCandidates(rows, rotated, norm, side, near) {
  const far = tiltedPoint(rows, rotated, side * FARTHEST_TILT);
  const candidates = [];
  if (norm === "nuclear") {
    const polished = limitOfActive(rows, rotated, side, near.active);
    if (polished) candidates.push(polished);
  } else {
    const single = onePart(rows, rotated, side);
    if (single) candidates.push(single);
  }
  if (far.status === "solved") candidates.push(asCandidate(far));
  candidates.push(asCandidate(near));
  return candidates;
}

/** Spectral limit: the part that is pressed to zero is exactly zero, the other is a least-length point in the plane. */
function onePart(rows, rotated, side) {
  const skip = side > 0 ? 2 : 0;
  const entries = new Float64Array(2 * rows.count);
  for (let k = 0; k < rows.count; k++) {
    entries[2 * k] = rotated[4 * k + skip];
    entries[2 * k + 1] = rotated[4 * k + skip + 1];
  }
  const point = leastLengthPoint(entries, rows.sides, rows.count, 2);
  if (point.status !== "solved") return null;
  const w = new Float64Array(4);
  w[skip] = point.weights[0];
  w[skip + 1] = point.weights[1];
  return { weights: fromRotationReflection(w), multipliers: point.multipliers };
}

/**
 * Nuclear limit: the heavy part u is the shortest one for which the tight rows have any v, and v the shortest that
 * belongs to it. With Q the tight rows' light parts and N an orthonormal basis of { mu : Q^T mu = 0 }:
 * u solves N^T P u = N^T b in least length, then v solves Q v = b - P u in least length; the multipliers are N mu.
 */
function limitOfActive(rows, rotated, side, active) {
  const heavy = side > 0 ? 0 : 2;
  const light = 2 - heavy;
  const count = active.length;
  const column = (from) => Float64Array.from(active, (k) => rotated[4 * k + from]);
  const span = orthonormalColumns([column(light), column(light + 1)], 1e-9);
  const frame = span.frame;
  const complement = [];
  for (let k = 0; k < count; k++) {
    const axis = new Float64Array(count);
    axis[k] = 1;
    const left = withoutColumns(axis, [...frame, ...complement]);
    const length = Math.hypot(...left);
    if (length > 1e-3) complement.push(left.map((entry) => entry / length));
  }
  if (complement.length === 0) return null;
  const mixed = new Float64Array(2 * complement.length);
  const asks = new Float64Array(complement.length);
  complement.forEach((basis, r) => {
    active.forEach((k, j) => {
      mixed[2 * r] += basis[j] * rotated[4 * k + heavy];
      mixed[2 * r + 1] += basis[j] * rotated[4 * k + heavy + 1];
      asks[r] += basis[j] * rows.sides[k];
    });
    if (asks[r] < 0) {
      asks[r] = -asks[r];
      mixed[2 * r] = -mixed[2 * r];
      mixed[2 * r + 1] = -mixed[2 * r + 1];
      for (let j = 0; j < count; j++) basis[j] = -basis[j];
    }
  });
  const u = equalityPoint(mixed, asks, complement.length);
  if (!u) return null;
  const rest = active.map((k) => rows.sides[k] - rotated[4 * k + heavy] * u.x - rotated[4 * k + heavy + 1] * u.y);
  const v = span.leastSolution(rest);
  const w = new Float64Array(4);
  w[heavy] = u.x;
  w[heavy + 1] = u.y;
  w[light] = v[0];
  w[light + 1] = v[1];
  const multipliers = new Float64Array(rows.count);
  active.forEach((k, j) => {
    let value = 0;
    complement.forEach((basis, r) => (value += basis[j] * u.multipliers[r]));
    multipliers[k] = value;
  });
  return { weights: fromRotationReflection(w), multipliers };
}

function withoutColumns(vector, columns) {
  const left = Float64Array.from(vector);
  for (let twice = 0; twice < 2; twice++) {
    for (const column of columns) {
      let along = 0;
      for (let j = 0; j < left.length; j++) along += column[j] * left[j];
      for (let j = 0; j < left.length; j++) left[j] -= along * column[j];
    }
  }
  return left;
}

/** Orthonormal basis of two columns (rank 0, 1 or 2), and the least-length solution of a system in them. */
function orthonormalColumns(columns, tolerance) {
  const sizes = columns.map((column) => Math.hypot(...column));
  const order = sizes[1] > sizes[0] ? [1, 0] : [0, 1];
  const largest = sizes[order[0]];
  const frame = [];
  if (largest > 0) {
    frame.push(columns[order[0]].map((entry) => entry / largest));
    const left = withoutColumns(columns[order[1]], frame);
    const length = Math.hypot(...left);
    if (length > tolerance * largest) frame.push(left.map((entry) => entry / length));
  }
  const along = (basis, vector) => basis.reduce((sum, entry, j) => sum + entry * vector[j], 0);
  return {
    frame,
    leastSolution(target) {
      const v = [0, 0];
      if (frame.length === 2) {
        v[order[1]] = along(frame[1], target) / along(frame[1], columns[order[1]]);
        const rest = along(frame[0], target) - along(frame[0], columns[order[1]]) * v[order[1]];
        v[order[0]] = rest / largest;
      } else if (frame.length === 1) {
        const a = largest;
        const b = along(frame[0], columns[order[1]]);
        const c = along(frame[0], target);
        v[order[0]] = (a * c) / (a * a + b * b);
        v[order[1]] = (b * c) / (a * a + b * b);
      }
      return v;
    },
  };
}

/** The shortest (x, y) with m_r . (x, y) = a_r for one or two rows, and multipliers with (x, y) = sum mu_r m_r. */
function equalityPoint(entries, asks, count) {
  if (count === 1) {
    const square = entries[0] * entries[0] + entries[1] * entries[1];
    if (!(square > 0)) return null;
    const mu = asks[0] / square;
    return { x: mu * entries[0], y: mu * entries[1], multipliers: [mu] };
  }
  if (count !== 2) return null;
  const [a, b, c, d] = entries;
  const determinant = a * d - b * c;
  if (Math.abs(determinant) < 1e-12 * Math.hypot(a, b) * Math.hypot(c, d)) return null;
  const x = (asks[0] * d - b * asks[1]) / determinant;
  const y = (a * asks[1] - asks[0] * c) / determinant;
  return { x, y, multipliers: [(x * d - y * c) / determinant, (a * y - b * x) / determinant] };
}
