import { directionCosine } from "../maths/numbers.js";
import { explanation } from "../words.js";
import { setAttributes, setText } from "./dom.js";

const LIVE_DELAY = 600;
const TOAST_TIME = 6000;

/**
 * What the page says: the explanatory line at once, the same to screen readers when it has settled, and short notices.
 * The line compares with the picture as it was before the present drag or change.
 */
export function createNarration({ line, live, toast }) {
  let before = null;
  let said = null;
  let liveTimer = null;
  let toastTimer = null;

  function isSaid({ state, partial }) {
    return (
      said !== null &&
      said.problem === state.problem &&
      said.settings === state.settings &&
      said.shown === state.shown &&
      said.partial === partial
    );
  }

  return {
    /** Explain a picture; while something moves the comparison stays with the picture before it. */
    explain(model, moving) {
      if (!isSaid(model)) {
        const text = explanation(said === null ? null : before, model, directionCosine);
        const { problem, settings, shown } = model.state;
        said = { problem, settings, shown, partial: model.partial };
        setText(line, text);
        clearTimeout(liveTimer);
        liveTimer = setTimeout(() => setText(live, text), LIVE_DELAY);
      }
      if (!moving) before = model;
    },
    /** Something else altogether is shown next: there is nothing to compare it with. */
    forget() {
      said = null;
    },
    say(sentence) {
      setText(toast, sentence);
      setAttributes(toast, { hidden: false });
      clearTimeout(toastTimer);
      toastTimer = setTimeout(() => setAttributes(toast, { hidden: true }), TOAST_TIME);
    },
    stop() {
      clearTimeout(liveTimer);
      clearTimeout(toastTimer);
    },
  };
}
