/** Basins of attraction: a grid of starting points, coloured by the selection on which descent ends. */
import { modelOf } from "./model.js";
import { advanceDescent, combineWeights, descentOf, selectedTokens, MOST_STEPS } from "./descent.js";
import { attendForward } from "./gradient.js";

/** Winners below this probability count as not settled. */
const SETTLED_PROBABILITY = 0.9;
const COARSEST_BLOCK = 8;

/**
 * Descent from every point of a square grid, coarse first, in slices of time so that a page stays awake.
 *
 * The plane is that of p(0), or for a matrix that of W(0) z_1 through W(0) = w z_1^T / |z_1|^2 (for K and Q in balanced
 * factors of rank one; w = 0 is their saddle). Drive it with `for (const state of basin(...))` or, to leave room for
 * frames, one `next()` at a time.
 * @param {{extent?: number, size?: number, budgetMs?: number}} grid extent: half the side of the square around 0; size:
 *   cells a side; budgetMs: how long a slice may take.
 * @param {((state: Object) => void)|null} onProgress called with each state.
 * @returns {Generator} of {done, total, size, extent, cells, settled, selections, coarse}: cells[row * size + column]
 *   is an index into `selections`, -1 where not known yet; row 0 is the top, at +extent. settled is 0 where a winner's
 *   probability is below 0.9. coarse: side of the blocks that are known so far, in cells.
 */
export function* basin(problem, settings, grid, onProgress) {
  const asked = grid || {};
  const size = Math.max(1, Math.min(512, Math.floor(Number(asked.size)) || 32));
  const extent = Number(asked.extent) > 0 && Number.isFinite(Number(asked.extent)) ? Number(asked.extent) : 3;
  const budget = Number(asked.budgetMs) >= 0 ? Number(asked.budgetMs) : 8;
  const model = modelOf(problem);
  const steps = Math.max(0, Math.min(MOST_STEPS, Math.floor(Number(settings && settings.steps)) || 0));
  const state = {
    done: 0,
    total: size * size,
    size,
    extent,
    cells: new Int32Array(size * size).fill(-1),
    settled: new Uint8Array(size * size),
    selections: [],
    coarse: COARSEST_BLOCK,
  };
  const known = new Map();
  let began = performance.now();
  for (let block = COARSEST_BLOCK; block >= 1; block /= 2) {
    state.coarse = block;
    for (let row = 0; row < size; row += block) {
      for (let column = 0; column < size; column += block) {
        const again = block < COARSEST_BLOCK && row % (2 * block) === 0 && column % (2 * block) === 0;
        if (again) continue;
        const x = size === 1 ? 0 : -extent + (2 * extent * (column + 0.5)) / size;
        const y = size === 1 ? 0 : extent - (2 * extent * (row + 0.5)) / size;
        const end = endOfDescent(model, settings, x, y, steps);
        const name = end.selected.join(",");
        if (!known.has(name)) {
          known.set(name, state.selections.length);
          state.selections.push(end.selected);
        }
        state.cells[row * size + column] = known.get(name);
        state.settled[row * size + column] = end.settled ? 1 : 0;
        state.done++;
        if (performance.now() - began >= budget) {
          if (onProgress) onProgress(state);
          yield state;
          began = performance.now();
        }
      }
    }
  }
  if (onProgress) onProgress(state);
  yield state;
  return state;
}

/** The selection that descent started at (x, y) of the basin's plane ends on. */
function endOfDescent(model, settings, x, y, steps) {
  const run = descentOf(model, settings);
  placeStart(run, x, y);
  advanceDescent(run, steps);
  attendForward(model, run.pass, run.headTrained);
  let settled = true;
  for (let i = 0; i < model.inputs; i++) {
    if (Math.exp(-run.pass.logNormalizer[i]) < SETTLED_PROBABILITY) settled = false;
  }
  return { selected: selectedTokens(run), settled };
}

function placeStart(run, x, y) {
  const { model, parameters } = run;
  const z0 = model.inputs ? model.queries[0] : 1;
  const z1 = model.inputs ? model.queries[1] : 0;
  const square = z0 * z0 + z1 * z1;
  parameters.fill(0, 0, 8);
  if (square > 0) {
    if (run.factored) {
      const query = Math.sqrt(square);
      const length = Math.hypot(x, y);
      const root = Math.sqrt(length / query);
      if (length > 0) {
        parameters[0] = (root * x) / length;
        parameters[2] = (root * y) / length;
        parameters[4] = (root * z0) / query;
        parameters[6] = (root * z1) / query;
      }
    } else {
      parameters[0] = (x * z0) / square;
      parameters[1] = (x * z1) / square;
      parameters[2] = (y * z0) / square;
      parameters[3] = (y * z1) / square;
    }
  }
  combineWeights(run);
}
