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
  let announced = "";
  let liveTimer = null;
  let toastTimer = null;

  function isSaid({ state, partial, index }) {
    return (
      said !== null &&
      said.problem === state.problem &&
      said.settings === state.settings &&
      said.shown === state.shown &&
      said.partial === partial &&
      said.index === index
    );
  }

  /** Screen readers hear the line when it has stood still for a moment, and never while the run plays. */
  function announce(playing) {
    if (playing) clearTimeout(liveTimer);
    if (playing || announced === line.textContent) return;
    announced = line.textContent;
    clearTimeout(liveTimer);
    liveTimer = setTimeout(() => setText(live, line.textContent), LIVE_DELAY);
  }

  return {
    /** Explain a picture; while something moves the comparison stays with the picture before it. */
    explain(model, { moving, playing }) {
      if (!isSaid(model)) {
        const { problem, settings, shown } = model.state;
        setText(line, explanation(said === null ? null : before, model, directionCosine));
        said = { problem, settings, shown, partial: model.partial, index: model.index };
      }
      announce(playing);
      if (!moving) before = model;
    },
    /** Something else altogether is shown next: there is nothing to compare it with. */
    forget() {
      said = null;
    },
    say(sentence) {
      setAttributes(toast, { hidden: false }); // first: a region that is hidden is not heard
      setText(toast, sentence);
      clearTimeout(toastTimer);
      toastTimer = setTimeout(() => setAttributes(toast, { hidden: true }), TOAST_TIME);
    },
    stop() {
      clearTimeout(liveTimer);
      clearTimeout(toastTimer);
    },
  };
}
