import { HIDEABLE, hiddenParts, hiddenSides } from "../state/display.js";
import { setAttributes } from "../view/dom.js";

/** A lecture hall sees as much as a page of this size would show, however many pixels the projector has. */
const LECTURE_HEIGHT = 560;
const LECTURE_WIDTH = 760;

/**
 * Lecture, embedding and hidden parts: applies a display to the page and follows the size of the window. `set` changes
 * it, `current` is the display in force.
 */
export function createPresentation(page, { host, first, onChange }) {
  let display = first;
  let fullScreen = false;

  function zoom() {
    return display.lecture ? Math.max(1, Math.min(innerHeight / LECTURE_HEIGHT, innerWidth / LECTURE_WIDTH)) : 1;
  }

  function apply() {
    const hidden = hiddenParts(display);
    for (const name of HIDEABLE) setAttributes(page.areas[name], { "data-away": hidden.includes(name) });
    setAttributes(page.element, {
      "data-lecture": display.lecture,
      "data-embed": display.embed,
      "data-text": display.text !== null,
      "data-lacks": hiddenSides(hidden).join(" ") || null,
    });
    page.element.style.setProperty("--zoom", zoom().toFixed(3));
  }

  function set(changes) {
    display = { ...display, ...changes };
    apply();
    onChange();
  }

  /** Lecture and full screen go together where a person asked for it; a link can only ask for the first. */
  function toggleLecture() {
    if (display.lecture) {
      if (fullScreen) document.exitFullscreen?.();
      set({ lecture: false });
    } else {
      page.areas.legend.open = false; // large as it is then, it would lie on the picture
      set({ lecture: true });
      if (navigator.userActivation?.isActive === false) return; // a script's click: browsers would refuse, and complain
      host.requestFullscreen?.().then(
        () => (fullScreen = true),
        () => {}, // not allowed in this frame: large type is there all the same
      );
    }
  }

  /** Whoever leaves full screen with Escape leaves the lecture too. */
  function followFullScreen() {
    if (!fullScreen || document.fullscreenElement === host) return;
    fullScreen = false;
    if (display.lecture) set({ lecture: false });
  }

  apply();
  return { current: () => display, set, apply, toggleLecture, followFullScreen };
}
