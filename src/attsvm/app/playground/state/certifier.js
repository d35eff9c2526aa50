const DELAY = 350;

/**
 * Asks the host for Python's certified solution once nothing has moved for a moment; never blocks, and an answer that
 * comes too late for what is on screen is dropped.
 */
export function createCertifier(certify, onAnswer) {
  let timer = null;
  let asked = null;
  const state = { answer: null, error: null, waiting: false };

  async function ask(question, key) {
    try {
      const answer = await certify(question.problem, question.selected, question.norm);
      if (asked !== key) return;
      Object.assign(state, { answer, error: null, waiting: false });
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
    want(model, moving) {
      if (!certify) return;
      const question = { problem: model.problem, selected: model.shown, norm: model.norm };
      const key = JSON.stringify(question);
      if (key === asked && !moving) return;
      if (key !== asked) {
        asked = key;
        state.waiting = true;
        clearTimeout(timer);
      }
      if (!moving) timer = setTimeout(() => ask(question, key), DELAY);
      else asked = null;
    },
  };
}
