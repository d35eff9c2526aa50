const DELAY = 350;

/**
 * Asks the host for Python's certified solution, and for what Python measures on the run, once nothing has moved for a
 * moment; never blocks, and an answer that comes too late for what is on screen is dropped. `waiting` says that the
 * solution is that of another picture; `measured` are the weights that Python's numbers of the run belong to.
 */
export function createCertifier(certify, onAnswer) {
  let timer = null;
  let asked = null;
  let measuring = null;
  const state = { answer: null, error: null, waiting: false, measured: null };

  async function ask({ problem, selected, norm, weights }, key) {
    try {
      const answer = await certify(problem, selected, norm, weights);
      if (asked !== key) return;
      Object.assign(state, { answer, error: null, waiting: false, measured: weights });
    } catch (error) {
      if (asked !== key) return;
      Object.assign(state, {
        answer: null,
        error: error instanceof Error ? error.message : String(error),
        waiting: false,
      });
    }
    onAnswer();
  }

  return {
    state,
    stop: () => clearTimeout(timer),
    /** Ask about this picture, unless the same was asked before or something still moves. */
    want(model, moving, playing) {
      if (!certify) return;
      const weights = model.run.weights[model.index];
      const question = { problem: model.problem, selected: model.shown, norm: model.norm };
      const key = JSON.stringify(question);
      if (key === asked && !moving && (weights === measuring || playing)) return;
      if (key !== asked) {
        asked = key;
        state.waiting = true;
      }
      clearTimeout(timer);
      measuring = moving ? null : weights;
      if (!moving) timer = setTimeout(() => ask({ ...question, weights }, key), DELAY);
      else asked = null;
    },
  };
}
