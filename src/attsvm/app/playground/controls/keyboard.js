import { addToken, flipLabel, itemPlace, removeCompanion, removeToken, setScore } from "../state/actions.js";
import { aimed } from "../view/plane.js";
import { itemMove } from "./drag.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

/** Keys and what they do, as the help lists them. */
export const KEY_HELP = [
  ["Tab", "walk through tokens, queries, head and starting points"],
  ["← ↑ → ↓", "move what has the focus; with Shift five times as far, with Alt a tenth"],
  ["+ and −", "raise or lower the score of the focused token (where scores are typed)"],
  ["Delete", "remove the focused token or companion run"],
  ["A", "add a token to the input of the focused one"],
  ["L", "flip the label of its input"],
  ["Space", "play or pause the run"],
  [", and .", "one recorded step back or forth"],
  ["Home and End", "first and last step"],
  ["[ and ]", "play more slowly or faster"],
  ["F", "lecture: full screen and large type; again, or Escape, to leave"],
  ["Ctrl Z, Ctrl Shift Z", "undo, redo"],
  ["?", "this help"],
];

function isTyping(target) {
  if (target instanceof HTMLTextAreaElement) return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "range"].includes(target.type);
}

function ownsKeys(target) {
  return (
    target instanceof HTMLButtonElement ||
    target instanceof HTMLSelectElement ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLInputElement ||
    (target instanceof HTMLElement && target.tagName === "SUMMARY")
  );
}

/**
 * Listen on the page's own root, so that nothing outside it is disturbed; keys used here go no further. Where the page
 * is alone, keys that nothing has the focus for are its own too: those of a page just opened.
 * @returns a function that stops listening outside the root.
 */
export function attachKeyboard(root, { store, model, plane, timeline, openHelp, onLecture, focusItem, onStroke, alone, onPlane }) {
  function moveItem(key, event) {
    const from = itemPlace(store.get(), key); // not the last picture: keys may come faster than frames
    if (from === null) return;
    const radius = plane().radius;
    const step = 0.02 * radius * (event.shiftKey ? 5 : event.altKey ? 0.1 : 1);
    const [right, up] = ARROWS[event.key];
    const x = aimed([from[0] + step * right, from[1] + step * up], radius * (event.altKey ? 0.1 : 1));
    store.beginStroke(`keys ${key}`);
    onStroke();
    store.change(itemMove(key, x), "move");
  }

  function tokenKey(key, event) {
    const [kind, first, second] = key.split("-");
    const i = Number(first);
    const t = Number(second);
    if (event.key === "Delete" || event.key === "Backspace") {
      if (kind === "companion") store.change((state) => removeCompanion(state, i), "remove");
      if (kind !== "token") return kind === "companion";
      store.change((state) => removeToken(state, i, t), "remove");
      const left = store.get().problem.inputs[i]?.tokens.length ?? 0;
      focusItem(left > 0 ? `token-${i}-${Math.min(t, left - 1)}` : "token-0-0");
      return true;
    }
    if (kind !== "token" && kind !== "query") return false;
    if (event.key === "a" || event.key === "A") {
      store.change((state) => addToken(state, i), "add");
      focusItem(`token-${i}-${(store.get().problem.inputs[i]?.tokens.length ?? 1) - 1}`);
      return true;
    }
    if (event.key === "l" || event.key === "L") {
      store.change((state) => flipLabel(state, i), "label");
      return true;
    }
    if (kind === "token" && model().typed && ["+", "=", "-", "_"].includes(event.key)) {
      const change = event.key === "+" || event.key === "=" ? 0.1 : -0.1;
      store.change((state) => {
        const score = (state.problem.inputs[i]?.tokens[t]?.score ?? 0) + change;
        return setScore(state, i, t, Math.round(score * 1000) / 1000);
      }, "score");
      return true;
    }
    return false;
  }

  function undoKey(event, target) {
    const letter = event.key.toLowerCase();
    if (!(event.ctrlKey || event.metaKey) || (letter !== "z" && letter !== "y")) return false;
    if (isTyping(target) && target.value !== target.defaultValue) return false; // the field's own undo
    if (letter === "y" || event.shiftKey) store.redo();
    else store.undo();
    return true;
  }

  function handle(event) {
    const target = event.composedPath()[0];
    if (onPlane() && undoKey(event, target)) return true;
    if (event.ctrlKey || event.metaKey) return false;
    if (!onPlane() && !["?", "f", "F"].includes(event.key)) return false;
    const item = target instanceof Element ? target.closest("[data-item]") : null;
    if (item !== null) {
      const key = item.dataset.item;
      if (event.key in ARROWS) {
        moveItem(key, event);
        return true;
      }
      if (!event.altKey && tokenKey(key, event)) return true;
    }
    if (isTyping(target) || event.altKey) return false;
    if (event.key === "?") openHelp();
    else if (event.key === ",") timeline.step(-1);
    else if (event.key === ".") timeline.step(1);
    else if (event.key === "[") timeline.changeBy(-1);
    else if (event.key === "]") timeline.changeBy(1);
    else if (target instanceof HTMLSelectElement) return false;
    else if (event.key === "f" || event.key === "F") onLecture();
    else if (ownsKeys(target)) return false;
    else if (event.key === " ") timeline.toggle();
    else if (event.key === "Home") timeline.goTo(0);
    else if (event.key === "End") timeline.goTo(null);
    else return false;
    return true;
  }

  root.addEventListener("keydown", (event) => {
    event.stopPropagation(); // notebooks have shortcuts on plain letters
    if (handle(event)) event.preventDefault();
  });

  const unclaimed = (event) => {
    if (event.target !== document.body && event.target !== document.documentElement) return;
    if (model() !== null && handle(event)) event.preventDefault();
  };
  if (alone) document.addEventListener("keydown", unclaimed);
  return () => document.removeEventListener("keydown", unclaimed);
}
