import { addToken, moveCompanionStart, moveHead, moveQuery, moveStart, moveToken } from "../state/actions.js";
import { aimed } from "../view/plane.js";

/** The update that brings the item of this key to a point of the plane. */
export function itemMove(key, x) {
  const [kind, first, second] = key.split("-");
  const i = Number(first);
  if (kind === "token") return (state) => moveToken(state, i, Number(second), x);
  if (kind === "query") return (state) => moveQuery(state, i, x);
  if (kind === "head") return (state) => moveHead(state, x);
  if (kind === "companion") return (state) => moveCompanionStart(state, i, 0, x);
  return (state) => moveStart(state, i, x);
}

/** Starts are rings: their rim is what is pressed, since a token may lie inside. */
const RIMS = { start: 12, companion: 6 };

/**
 * Mouse, touch and pen: press an item and move it; one finger each. The pointer is captured, so that a drag that
 * leaves the picture goes on. Calls `begin`, `move` and `end` with the key of the item.
 */
export function attachDragging(svg, { plane, store, onFocus, onMoving, currentInput }) {
  const held = new Map();

  function place(event) {
    const box = svg.getBoundingClientRect();
    const scale = [plane().width / box.width, plane().height / box.height];
    return [(event.clientX - box.left) * scale[0], (event.clientY - box.top) * scale[1]];
  }

  function positionOf(element) {
    const { e, f } = element.transform.baseVal.consolidate().matrix;
    return [e, f];
  }

  /** The item nearest to a pixel, within reach; of several in one place the one that has the focus, else the topmost. */
  function nearestItem(pixel, reach) {
    let best = null;
    let least = reach;
    for (const item of svg.querySelectorAll("[data-item]")) {
      const [x, y] = positionOf(item);
      const away = Math.abs(Math.hypot(x - pixel[0], y - pixel[1]) - (RIMS[item.dataset.item.split("-")[0]] ?? 0));
      if (away < least - 0.5 || (away < least + 0.5 && best !== svg.getRootNode().activeElement)) {
        best = item;
        least = Math.min(least, away);
      }
    }
    return best;
  }

  function itemUnder(event) {
    return nearestItem(place(event), event.pointerType === "mouse" || event.type === "dblclick" ? 17 : 26);
  }

  function press(event) {
    const item = itemUnder(event);
    if (item === null || (event.pointerType === "mouse" && event.button !== 0)) return;
    event.preventDefault();
    const pixel = place(event);
    const from = positionOf(item);
    const key = item.dataset.item;
    held.set(event.pointerId, { key, grip: [from[0] - pixel[0], from[1] - pixel[1]], moved: false });
    svg.setPointerCapture(event.pointerId);
    item.focus({ preventScroll: true });
    onFocus(key);
  }

  function drag(event) {
    const hold = held.get(event.pointerId);
    if (hold === undefined) return;
    hold.moved = true;
    store.beginStroke("drag"); // at every move: an undo or an arrow key may have ended the stroke meanwhile
    onMoving(true);
    const pixel = place(event);
    const x = plane().toPlane([pixel[0] + hold.grip[0], pixel[1] + hold.grip[1]]);
    store.change(itemMove(hold.key, aimed(x, plane().radius)), "move");
  }

  function release(event) {
    const hold = held.get(event.pointerId);
    if (hold === undefined) return;
    held.delete(event.pointerId);
    if (!hold.moved) return;
    store.endStroke();
    onMoving(held.size > 0);
  }

  function double(event) {
    if (itemUnder(event) !== null) return;
    const x = aimed(plane().toPlane(place(event)), plane().radius);
    store.change((state) => addToken(state, Math.min(currentInput(), state.problem.inputs.length - 1), x), "add");
  }

  // A finger on an item drags it; anywhere else it scrolls the page.
  svg.addEventListener(
    "touchstart",
    (event) => {
      if (nearestItem(place(event.changedTouches[0]), 26) !== null) event.preventDefault();
    },
    { passive: false },
  );
  svg.addEventListener("pointerdown", press);
  svg.addEventListener("pointermove", drag);
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  svg.addEventListener("lostpointercapture", release);
  svg.addEventListener("dblclick", double);
}
