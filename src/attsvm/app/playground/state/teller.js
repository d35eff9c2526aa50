import { encodeState } from "./share.js";

const TELL_DELAY = 250;

/** Tells the address and the host of a new state, once it has settled; the same state is not told twice. */
export function createTeller({ first, ownsAddress, onChange }) {
  let told = JSON.stringify(first);
  let timer = null;
  let waiting = null;

  function tell(model) {
    const text = JSON.stringify(model.state);
    if (text === told) return;
    told = text;
    if (ownsAddress) {
      try {
        history.replaceState(history.state, "", `#${encodeState(model.state)}`);
      } catch {
        // Some embedding pages forbid it; the link can still be copied.
      }
    }
    onChange?.(JSON.parse(text), [...model.selected]);
  }

  return {
    want(model, moving) {
      if (!moving && waiting === model.state) return; // further frames of the same state do not put it off
      clearTimeout(timer);
      waiting = moving ? null : model.state;
      if (!moving) timer = setTimeout(() => tell(model), TELL_DELAY);
    },
    stop: () => clearTimeout(timer),
  };
}
