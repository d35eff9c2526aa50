import { INVITATION, OPENING_SENTENCE } from "../words.js";

/** Milliseconds to read the first sentence before anything moves. */
const READING = 2600;

/**
 * The first ten seconds of a page that was opened without a scene of its own: it stands at step 0 with one sentence, plays
 * the run once and ends with an invitation. Whoever touches anything takes over; whoever asked for less motion presses
 * play themselves. `words` is what to say in place of the scene's advice, null when the opening is over.
 */
export function createOpening({ fresh, root, timeline, onChange }) {
  let phase = fresh ? "reading" : "over";
  let timer = null;

  function enter(next) {
    clearTimeout(timer);
    if (phase === next) return;
    phase = next;
    onChange();
  }

  function play() {
    if (phase !== "reading") return;
    if (document.hidden) {
      document.addEventListener("visibilitychange", play, { once: true });
      return;
    }
    enter("playing");
    timeline.play();
  }

  /** A hand on the page before the run has begun: it will not begin by itself. */
  function takeOver() {
    if (phase === "reading") enter("waiting");
  }

  if (fresh) {
    root.addEventListener("pointerdown", takeOver, { once: true });
    root.addEventListener("keydown", takeOver, { once: true });
  }

  return {
    /** Begin to count the seconds, once the first picture is there; whether they began now. */
    begin() {
      if (phase !== "reading" || timer !== null) return false;
      if (matchMedia("(prefers-reduced-motion: reduce)").matches) enter("waiting");
      else timer = setTimeout(play, READING);
      return true;
    },
    /** Follow the page: the end of the run is the invitation, a change of the scene the end of the opening. */
    follow({ time, changed }) {
      if (phase === "over") return;
      if (changed) enter("over");
      else if (phase !== "invited" && time === null && !timeline.isPlaying()) enter("invited");
    },
    words: () => (phase === "over" ? null : phase === "invited" ? INVITATION : OPENING_SENTENCE),
    /** Whether what is shown is still the page's own doing and no state to put into the address. */
    isOwn: () => phase === "reading" || phase === "playing",
    stop() {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", play);
    },
  };
}
