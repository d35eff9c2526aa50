import { encodeState } from "./link.js";

const PUBLISH_DELAY = 250;

/** Publishes a new state to the address and the host once it has settled; the same state is not published twice. */
export function createPublisher({ first, ownsAddress, onChange }) {
  let published = JSON.stringify(first);
  let timer = null;
  let waiting = null;

  function publish(model) {
    const text = JSON.stringify(model.state);
    if (text === published) return;
    published = text;
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
      if (!moving) timer = setTimeout(() => publish(model), PUBLISH_DELAY);
    },
    stop: () => clearTimeout(timer),
  };
}
