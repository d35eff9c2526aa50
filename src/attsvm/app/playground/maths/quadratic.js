/**
 * The point of least length that satisfies some inequalities: min |w| s.t. a_k . w >= b_k, b_k >= 0 or not.
 *
 * A dual active-set method (Goldfarb and Idnani, 1983) in two or four unknowns: it starts from the unconstrained
 * optimum 0, takes in the worst row, drops rows whose multiplier would turn negative, and ends after finitely many
 * exchanges with the solution or with a combination of rows that proves that there is none.
 */

const DEPENDENT_ROW = 1e-11;
const VIOLATED_ROW = 1e-13;

/**
 * @param {Float64Array} entries rows one after the other, `count` times `size` numbers.
 * @param {Float64Array} sides b.
 * @returns {{status: "solved"|"infeasible"|"unfinished", weights: Float64Array, multipliers: Float64Array,
 *            active: number[]}} multipliers: w = sum_k lam_k a_k, or where infeasible a ray: sum_k lam_k a_k = 0.
 */
export function leastLengthPoint(entries, sides, count, size) {
  const weights = new Float64Array(size);
  const multipliers = new Float64Array(count);
  const lengths = new Float64Array(count);
  const unit = new Float64Array(count * size);
  const asks = new Float64Array(count);
  for (let k = 0; k < count; k++) {
    const length = rowLength(entries, k * size, size);
    lengths[k] = length;
    if (length > 0) {
      for (let j = 0; j < size; j++) unit[k * size + j] = entries[k * size + j] / length;
      asks[k] = sides[k] / length;
    } else if (sides[k] > 0) {
      multipliers[k] = 1 / sides[k];
      return { status: "infeasible", weights, multipliers, active: [k] };
    }
  }
  const basis = activeBasis(size);
  const within = new Uint8Array(count);
  const limit = 100 + 20 * count;
  let status = "unfinished";
  for (let exchanges = 0; exchanges < limit; ) {
    const worst = worstRow(unit, asks, lengths, weights, within, count, size);
    if (worst < 0) {
      status = "solved";
      break;
    }
    let added = 0;
    for (;;) {
      if (++exchanges > limit) break;
      const free = basis.split(unit, worst * size);
      let blocking = -1;
      let most = Infinity;
      for (let j = 0; j < basis.rows.length; j++) {
        if (basis.shares[j] > 0) {
          const ratio = multipliers[basis.rows[j]] / basis.shares[j];
          if (ratio < most) {
            most = ratio;
            blocking = j;
          }
        }
      }
      if (free <= DEPENDENT_ROW && blocking < 0) {
        const ray = new Float64Array(count);
        ray[worst] = 1 / lengths[worst];
        for (let j = 0; j < basis.rows.length; j++) {
          ray[basis.rows[j]] = Math.max(0, -basis.shares[j]) / lengths[basis.rows[j]];
        }
        return { status: "infeasible", weights, multipliers: ray, active: [...basis.rows, worst] };
      }
      let missing = asks[worst];
      for (let j = 0; j < size; j++) missing -= unit[worst * size + j] * weights[j];
      const full = free <= DEPENDENT_ROW ? Infinity : Math.max(0, missing) / (free * free);
      const step = Math.min(most, full);
      if (free > DEPENDENT_ROW) for (let j = 0; j < size; j++) weights[j] += step * basis.remainder[j];
      for (let j = 0; j < basis.rows.length; j++) multipliers[basis.rows[j]] -= step * basis.shares[j];
      added += step;
      if (full <= most) {
        multipliers[worst] = added;
        within[worst] = 1;
        basis.add(unit, worst);
        break;
      }
      const dropped = basis.rows[blocking];
      multipliers[dropped] = 0;
      within[dropped] = 0;
      basis.drop(unit, blocking);
    }
  }
  if (status === "solved") basis.polish(unit, asks, weights, multipliers);
  for (let k = 0; k < count; k++) if (lengths[k] > 0) multipliers[k] /= lengths[k];
  return { status, weights, multipliers, active: [...basis.rows] };
}

function rowLength(entries, at, size) {
  let largest = 0;
  for (let j = 0; j < size; j++) largest = Math.max(largest, Math.abs(entries[at + j]));
  if (!(largest > 0)) return 0;
  let sum = 0;
  for (let j = 0; j < size; j++) sum += (entries[at + j] / largest) * (entries[at + j] / largest);
  return Math.sqrt(sum) * largest;
}

function worstRow(unit, asks, lengths, weights, within, count, size) {
  let length = 0;
  for (let j = 0; j < size; j++) length = Math.max(length, Math.abs(weights[j]));
  let worst = -1;
  let deepest = 0;
  for (let k = 0; k < count; k++) {
    if (within[k] || !(lengths[k] > 0)) continue;
    let missing = asks[k];
    for (let j = 0; j < size; j++) missing -= unit[k * size + j] * weights[j];
    if (missing > VIOLATED_ROW * (Math.abs(asks[k]) + length) && missing > deepest) {
      deepest = missing;
      worst = k;
    }
  }
  return worst;
}

/** The active rows with an orthonormal basis of their span, kept by Gram-Schmidt done twice. */
function activeBasis(size) {
  const rows = [];
  const frame = new Float64Array(size * size);
  const triangle = new Float64Array(size * size);
  const coordinates = new Float64Array(size);
  const basis = {
    rows,
    shares: new Float64Array(size),
    remainder: new Float64Array(size),
    /** Write `vector` as shares of the active rows plus an orthogonal remainder; returns the remainder's length. */
    split(unit, at) {
      const { remainder, shares } = basis;
      const rank = rows.length;
      for (let j = 0; j < size; j++) remainder[j] = unit[at + j];
      for (let r = 0; r < rank; r++) coordinates[r] = 0;
      for (let twice = 0; twice < 2; twice++) {
        for (let r = 0; r < rank; r++) {
          let along = 0;
          for (let j = 0; j < size; j++) along += frame[r * size + j] * remainder[j];
          coordinates[r] += along;
          for (let j = 0; j < size; j++) remainder[j] -= along * frame[r * size + j];
        }
      }
      for (let r = rank - 1; r >= 0; r--) {
        let value = coordinates[r];
        for (let c = r + 1; c < rank; c++) value -= triangle[r * size + c] * shares[c];
        shares[r] = value / triangle[r * size + r];
      }
      if (rank >= size) return 0;
      let sum = 0;
      for (let j = 0; j < size; j++) sum += remainder[j] * remainder[j];
      return Math.sqrt(sum);
    },
    add(unit, row) {
      const length = basis.split(unit, row * size);
      const rank = rows.length;
      for (let r = 0; r < rank; r++) triangle[r * size + rank] = coordinates[r];
      triangle[rank * size + rank] = length;
      for (let j = 0; j < size; j++) frame[rank * size + j] = basis.remainder[j] / length;
      rows.push(row);
    },
    drop(unit, place) {
      const kept = rows.filter((_, j) => j !== place);
      rows.length = 0;
      for (const row of kept) basis.add(unit, row);
    },
    /** Least-length point with all active rows tight, refined once, and its multipliers. */
    polish(unit, asks, weights, multipliers) {
      const rank = rows.length;
      const lengths = new Float64Array(rank);
      weights.fill(0);
      for (let twice = 0; twice < 2; twice++) {
        for (let r = 0; r < rank; r++) {
          let value = asks[rows[r]];
          for (let j = 0; j < size; j++) value -= unit[rows[r] * size + j] * weights[j];
          coordinates[r] = value;
        }
        for (let r = 0; r < rank; r++) {
          for (let c = 0; c < r; c++) coordinates[r] -= triangle[c * size + r] * coordinates[c];
          coordinates[r] /= triangle[r * size + r];
        }
        for (let r = 0; r < rank; r++) {
          lengths[r] += coordinates[r];
          for (let j = 0; j < size; j++) weights[j] += coordinates[r] * frame[r * size + j];
        }
      }
      for (let r = rank - 1; r >= 0; r--) {
        let value = lengths[r];
        for (let c = r + 1; c < rank; c++) value -= triangle[r * size + c] * multipliers[rows[c]];
        multipliers[rows[r]] = value / triangle[r * size + r];
      }
      for (let r = 0; r < rank; r++) multipliers[rows[r]] = Math.max(0, multipliers[rows[r]]);
    },
  };
  return basis;
}
