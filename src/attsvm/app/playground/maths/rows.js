/** The constraints of a selection: rows A_k = (x_selected - x_t) z^T and what they ask for. */
import { exactRow } from "./exact.js";
import { nestedByInput } from "./model.js";

/**
 * Rows of the attention SVM of `selected`, one a token that is not selected.
 * @param {Object} model from `modelOf`.
 * @param {number[]} selected one token an input, -1 for inputs to leave out.
 * @param {number[]|null} sides what each input's rows ask for; null means 1.
 * @param {((i: number, t: number) => boolean)|null} keep which rows to keep; null keeps all.
 */
export function constraintRows(model, selected, sides, keep) {
  const inputs = [];
  const tokens = [];
  const entries = [];
  const exact = [];
  const asks = [];
  for (let i = 0; i < model.inputs; i++) {
    if (selected[i] < 0) continue;
    const own = model.offset[i] + selected[i];
    const side = sides && Number.isFinite(sides[i]) ? Number(sides[i]) : 1;
    for (let k = model.offset[i]; k < model.offset[i + 1]; k++) {
      const t = k - model.offset[i];
      if (k === own || (keep && !keep(i, t))) continue;
      const d0 = model.tokens[2 * own] - model.tokens[2 * k];
      const d1 = model.tokens[2 * own + 1] - model.tokens[2 * k + 1];
      inputs.push(i);
      tokens.push(t);
      asks.push(side);
      const pairs = [0, 1].map((j) => [model.tokens[2 * own + j], model.tokens[2 * k + j]]);
      if (model.prompt) {
        exact.push(() => exactRow(pairs, [1]));
        entries.push(d0, d1);
      } else {
        exact.push(() => exactRow(pairs, model.queries.subarray(2 * i, 2 * i + 2)));
        const z0 = model.queries[2 * i];
        const z1 = model.queries[2 * i + 1];
        entries.push(d0 * z0, d0 * z1, d1 * z0, d1 * z1);
      }
    }
  }
  return {
    size: model.size,
    count: inputs.length,
    inputs,
    tokens,
    entries: Float64Array.from(entries),
    exact,
    sides: Float64Array.from(asks),
  };
}

/** Rows given as plain vectors, for problems that are not about a selection. */
export function plainRows(size, vectors, sides) {
  return {
    size,
    count: vectors.length,
    inputs: vectors.map((_, k) => k),
    tokens: vectors.map(() => 0),
    entries: Float64Array.from(vectors.flat()),
    exact: vectors.map((vector) => () => exactRow(vector.map((entry) => [entry, 0]), [1])),
    sides: Float64Array.from(sides),
  };
}

/** <A_k, W> of row k. */
export function rowMargin(rows, k, weights) {
  let sum = 0;
  for (let j = 0; j < rows.size; j++) sum += rows.entries[k * rows.size + j] * weights[j];
  return sum;
}

/** sum_k lam_k A_k. */
export function combinedRows(rows, multipliers) {
  const sum = new Float64Array(rows.size);
  for (let k = 0; k < rows.count; k++) {
    if (multipliers[k] === 0) continue;
    for (let j = 0; j < rows.size; j++) sum[j] += multipliers[k] * rows.entries[k * rows.size + j];
  }
  return sum;
}

/** (x_selected - x_t)^T W z of every token, [input][token]; 0 at the selected one. */
export function marginsByInput(model, selected, weights) {
  const flat = new Float64Array(model.total);
  const [w0, w1, w2, w3] = model.prompt ? [weights[0], 0, weights[1], 0] : weights;
  for (let i = 0; i < model.inputs; i++) {
    if (selected[i] < 0) continue;
    const own = model.offset[i] + selected[i];
    const d0 = w0 * model.queries[2 * i] + w1 * model.queries[2 * i + 1];
    const d1 = w2 * model.queries[2 * i] + w3 * model.queries[2 * i + 1];
    for (let k = model.offset[i]; k < model.offset[i + 1]; k++) {
      const x = model.tokens[2 * own] - model.tokens[2 * k];
      const y = model.tokens[2 * own + 1] - model.tokens[2 * k + 1];
      flat[k] = x * d0 + y * d1;
    }
  }
  return nestedByInput(model, flat);
}
