import { basin } from "../maths/basin.js";
import { localOptima } from "../maths/optimality.js";
import { solvedNorm } from "./analysis.js";

const WAIT = 140;
const GRID = 56;
const SLICE = 7;
const MOST_BASIN_STEPS = 1000;

/** How many steps the descents of a basin take. */
function basinSteps(settings) {
  return Math.min(settings.steps, MOST_BASIN_STEPS);
}

/** Cells of a basin as indices of destinations: -1 where attention stays spread, null where nothing is known yet. */
function filledCells(state, indexOf) {
  const { size, cells, settled } = state;
  const filled = new Array(size * size).fill(null);
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      for (let block = 1; block <= 8; block *= 2) {
        const at = (row - (row % block)) * size + column - (column % block);
        if (cells[at] < 0) continue;
        filled[row * size + column] = settled[at] ? indexOf(state.selections[cells[at]]) : -1;
        break;
      }
    }
  }
  return filled;
}

/**
 * What takes longer than a frame: locally optimal selections and the basin. Waits until nothing has moved for a moment,
 * works in slices, and calls `onResult` when there is something new to draw.
 */
export function createBackgroundWork(onResult) {
  let optima = null;
  let field = null;
  let timer = null;
  let version = 0;

  function stop() {
    clearTimeout(timer);
    timer = null;
  }

  function findOptima(state) {
    const norm = solvedNorm(state.settings);
    optima = { problem: state.problem, norm, found: localOptima(state.problem, { norm, limit: 1500 }) };
    onResult();
  }

  function sameField(state, extent) {
    if (field === null || field.problem !== state.problem || field.extent !== extent) return false;
    const { start, ...rest } = state.settings;
    return field.settings === JSON.stringify(rest);
  }

  function beginField(state, extent) {
    const { start, ...rest } = state.settings;
    const settings = { ...state.settings, steps: basinSteps(state.settings) };
    field = {
      problem: state.problem,
      extent,
      settings: JSON.stringify(rest),
      slices: basin(state.problem, settings, { extent, size: GRID, budgetMs: SLICE }, null),
      last: null,
      over: false,
    };
  }

  function continueField() {
    const { value, done } = field.slices.next();
    if (value) field.last = value;
    field.over = Boolean(done);
    version += 1;
    if (version % 6 === 0 || field.over) onResult();
  }

  /** Ask for what `state` needs; `moving` puts it off. */
  function want(state, extent, moving) {
    stop();
    if (moving) return;
    const headTrained = state.settings.trainHead;
    const needsOptima =
      !headTrained &&
      (optima === null || optima.problem !== state.problem || optima.norm !== solvedNorm(state.settings));
    const needsField = state.view.layers.basin && !(sameField(state, extent) && field.over);
    if (!needsOptima && !needsField) return;
    const work = () => {
      if (
        needsOptima &&
        (optima === null || optima.problem !== state.problem || optima.norm !== solvedNorm(state.settings))
      )
        findOptima(state);
      if (!needsField) return;
      if (!sameField(state, extent)) beginField(state, extent);
      if (!field.over) {
        continueField();
        timer = setTimeout(work, 12);
      }
    };
    timer = setTimeout(work, sameField(state, extent) ? 12 : WAIT);
  }

  /** What is known for this state, to be added to its model. */
  function results(state, extent) {
    const fresh =
      optima !== null &&
      optima.problem === state.problem &&
      optima.norm === solvedNorm(state.settings) &&
      !state.settings.trainHead;
    const known = fresh ? optima.found : null;
    const destinations = (known?.selections ?? []).map(({ selected }) => selected.join("-"));
    const indexOf = (selected) => {
      const key = selected.join("-");
      if (!destinations.includes(key)) destinations.push(key);
      return destinations.indexOf(key);
    };
    const usable = state.view.layers.basin && sameField(state, extent) && field.last !== null;
    const basinNow = usable
      ? {
          cells: filledCells(field.last, indexOf),
          size: field.last.size,
          extent,
          steps: basinSteps(state.settings),
          done: field.over ? 1 : field.last.done / field.last.total,
          version: `${version}-${destinations.join()}`,
        }
      : state.view.layers.basin
        ? { cells: null, done: 0, version: "none", steps: basinSteps(state.settings) }
        : null;
    return { optima: known, basin: basinNow, destinations };
  }

  return { want, results, stop };
}
