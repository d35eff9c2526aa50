import { capital } from "../format.js";
import { node, setAttributes, setText } from "./dom.js";

/** How far from the pointer a mark may lie, in pixels: lines are thin. */
const REACH = [
  [0, 0],
  [0, -4],
  [4, 0],
  [0, 4],
  [-4, 0],
];
/** Milliseconds that a name stays after a finger has left. */
const LINGER = 1800;

/**
 * Names the mark under the pointer, or under a finger that touches it: whatever carries `data-name`, and what can be
 * moved by the name that screen readers hear.
 */
export function createHoverName(stage, picture) {
  const element = node("div", { class: "hover-name", hidden: true, "aria-hidden": "true" });
  let timer = null;

  function nameAt(x, y) {
    const root = picture.getRootNode();
    for (const [right, down] of REACH) {
      const found = root.elementFromPoint(x + right, y + down)?.closest("[data-item], [data-name]");
      if (found && picture.contains(found)) return found.dataset.name ?? found.getAttribute("aria-label");
    }
    return null;
  }

  function show(event) {
    const name = nameAt(event.clientX, event.clientY);
    clearTimeout(timer);
    setAttributes(element, { hidden: name === null });
    if (name === null) return;
    setText(element, capital(name));
    const box = stage.getBoundingClientRect();
    const scale = box.width / stage.offsetWidth || 1; // a lecture is zoomed
    const [x, y] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
    const left = Math.min(Math.max(4, x + 14), stage.offsetWidth - element.offsetWidth - 4);
    const under = y + 20 + element.offsetHeight < stage.offsetHeight;
    element.style.setProperty("transform", `translate(${left}px, ${under ? y + 16 : y - element.offsetHeight - 14}px)`);
  }

  function hide() {
    clearTimeout(timer);
    setAttributes(element, { hidden: true });
  }

  picture.addEventListener("pointermove", (event) => {
    if (event.buttons === 0) show(event);
    else if (event.pointerType === "mouse") hide(); // nothing covers what is dragged
  });
  picture.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse") show(event);
  });
  picture.addEventListener("pointerup", (event) => {
    if (event.pointerType !== "mouse") timer = setTimeout(hide, LINGER);
  });
  picture.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") hide();
  });
  return { element, stop: () => clearTimeout(timer) };
}
