import { encodeAddress } from "./link.js";

const PUBLISH_DELAY = 250;

/**
 * Publishes a new state to the address and the host once it has settled; the same state is not published twice. The
 * address also says how the page is shown.
 */
export function createPublisher({ first, display, ownsAddress, onChange }) {
  let published = JSON.stringify(first);
  let address = encodeAddress(first, display());
  let timer = null;
  let waiting = null;
  let waitingDisplay = display();

  function publishAddress(state) {
    const text = encodeAddress(state, display());
    if (text === address) return;
    address = text;
    try {
      history.replaceState(history.state, "", `#${text}`);
    } catch {
      // Some embedding pages forbid it; the link can still be copied.
    }
  }

  function publish(model) {
    if (ownsAddress) publishAddress(model.state);
    const text = JSON.stringify(model.state);
    if (text === published) return;
    published = text;
    onChange?.(JSON.parse(text), [...model.selected]);
  }

  return {
    want(model, moving) {
      // Further frames of the same state do not put it off.
      if (!moving && waiting === model.state && waitingDisplay === display()) return;
      clearTimeout(timer);
      waiting = moving ? null : model.state;
      waitingDisplay = display();
      if (!moving) timer = setTimeout(() => publish(model), PUBLISH_DELAY);
    },
    stop: () => clearTimeout(timer),
  };
}
