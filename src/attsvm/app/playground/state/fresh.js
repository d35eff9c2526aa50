import { freshInputs, layInputs, randomData, selectionsOf } from "../maths/generalization.js";

/** How many fresh inputs are counted, and how many of them the picture shows. */
const FRESH_COUNT = 400;
const DRAWN_COUNT = 40;

/** Whether the problem is still the one that was drawn at random. */
export function isRandomScene({ random, problem }) {
  if (random === null) return false;
  const { kind, ...drawn } = randomData(random);
  const { kind: present, ...now } = problem;
  return JSON.stringify(drawn) === JSON.stringify({ head: now.head, inputs: now.inputs });
}

/**
 * Counts how often the layer selects right, on the inputs it is trained on and on fresh ones; remembers the fresh inputs
 * while the problem stays, and the counts along a run while nothing moves.
 */
export function createFreshCounter() {
  let laid = null;
  let along = null;
  let random = null;

  function drawnPlan(state) {
    if (random === null || random.problem !== state.problem || random.plan !== state.random)
      random = { problem: state.problem, plan: state.random, holds: isRandomScene(state) };
    return random.holds ? state.random : null;
  }

  function layOut(state) {
    const { problem } = state;
    const { spread, seed } = state.view.fresh;
    const drawn = drawnPlan(state);
    if (laid !== null && laid.problem === problem && laid.spread === spread && laid.seed === seed && laid.drawn === drawn)
      return laid;
    const inputs = freshInputs(problem, { seed, count: FRESH_COUNT, spread, drawn });
    laid = { problem, spread, seed, drawn, fresh: layInputs(inputs), training: layInputs(problem.inputs) };
    return laid;
  }

  /** What to show at this record; counts along the whole run only where nothing moves. */
  return function count(state, run, index, headTrained, moving) {
    const { fresh, training, drawn } = layOut(state);
    const headAt = (k) => (headTrained ? run.parameters[k].head : state.problem.head);
    const share = (where, k) => selectionsOf(where, run.weights[k], headAt(k)).count / where.inputs.length;
    if (!moving && (along === null || along.run !== run || along.laid !== laid))
      along = {
        run,
        laid,
        fresh: run.weights.map((_, k) => share(fresh, k)),
        training: run.weights.map((_, k) => share(training, k)),
      };
    const now = selectionsOf(fresh, run.weights[index], headAt(index));
    const known = selectionsOf(training, run.weights[index], headAt(index));
    return {
      count: FRESH_COUNT,
      right: now.count,
      trainingRight: known.count,
      drawn: drawn !== null,
      along: along !== null && along.run === run ? along : null,
      marks: fresh.inputs.slice(0, DRAWN_COUNT).map((input, k) => ({
        input: drawn === null ? k % state.problem.inputs.length : null,
        tokens: input.tokens.map(({ x }) => x),
        selected: now.selected[k],
        right: now.right[k],
      })),
    };
  };
}
