import { setTime } from "../state/actions.js";
import { SPEEDS } from "../state/display.js";
import { node, setAttributes, setText } from "../view/dom.js";
import { grouped } from "../format.js";

const SECONDS = 7;
const CALM_JUMPS = 12;

/** Play, pause and a slider that walks along the recorded steps of the run. */
export function createTimeline({ store, model, speed, onSpeed, onPause }) {
  const button = node("button", { type: "button", class: "round", onclick: () => toggle() });
  const slider = node("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "step of the run",
    oninput: () => slide(),
  });
  const pace = node(
    "select",
    { class: "pace", "aria-label": "speed of playing", title: "speed ([ slower, ] faster)", onchange: () => change(Number(pace.value)) },
    SPEEDS.map((each) => node("option", { value: each }, `${{ 0.25: "¼", 0.5: "½" }[each] ?? each} ×`)),
  );
  const reached = node("span", {});
  const total = node("span", { class: "of" });
  const number = node("span", { class: "step" }, reached, total);
  const element = node("div", { class: "timeline" }, button, slider, number, pace);
  let playing = null;

  function steps() {
    return model().run.steps;
  }

  function show(index) {
    const all = steps();
    const at = Math.max(0, Math.min(all.length - 1, index));
    store.look((state) => setTime(state, at === all.length - 1 ? null : all[at]), "time");
  }

  function slide() {
    pause();
    show(Number(slider.value));
  }

  function pause() {
    if (playing === null) return;
    cancelAnimationFrame(playing.frame);
    clearTimeout(playing.timer);
    playing = null;
    update({ model: model() });
    onPause();
  }

  function play() {
    const last = steps().length - 1;
    const from = model().index >= last ? 0 : model().index;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    playing = { began: performance.now(), from };
    show(from);
    if (calm) jump(from, Math.max(1, Math.ceil(last / CALM_JUMPS)));
    else playing.frame = requestAnimationFrame(walk);
    update({ model: model() });
  }

  /** For those who asked for less motion: a few jumps instead of a film. */
  function jump(at, stride) {
    playing.timer = setTimeout(() => {
      if (playing === null) return;
      const next = at + stride;
      show(next);
      if (next >= steps().length - 1) pause();
      else jump(next, stride);
    }, 600 / speed());
  }

  function walk(now) {
    if (playing === null) return;
    const last = steps().length - 1;
    const at = playing.from + (speed() * last * (now - playing.began)) / (1000 * SECONDS);
    show(Math.floor(at));
    if (at >= last) pause();
    else playing.frame = requestAnimationFrame(walk);
  }

  /** Another speed goes on from where the run stands. */
  function change(value) {
    if (playing !== null) Object.assign(playing, { began: performance.now(), from: model().index });
    onSpeed(value);
  }

  /** The next speed of the list in this direction. */
  function changeBy(direction) {
    const faster = SPEEDS.filter((each) => (direction > 0 ? each > speed() : each < speed()));
    if (faster.length > 0) change(direction > 0 ? faster[0] : faster[faster.length - 1]);
  }

  function toggle() {
    if (playing === null) play();
    else pause();
  }

  function update({ model: now }) {
    const all = now.run.steps;
    setAttributes(slider, {
      max: all.length - 1,
      // Not while it plays: a screen reader would speak at every frame.
      ...(playing === null && { "aria-valuetext": `step ${all[now.index]} of ${all[all.length - 1]}` }),
    });
    if (Number(slider.value) !== now.index) slider.value = String(now.index);
    slider.style.setProperty("--done", `${(100 * now.index) / Math.max(1, all.length - 1)}%`);
    setText(reached, `step ${grouped(all[now.index])}`);
    setText(total, ` of ${grouped(all[all.length - 1])}`);
    if (pace.value !== String(speed())) pace.value = String(speed());
    const name = playing === null ? "play" : "pause";
    setAttributes(button, { "aria-label": `${name} the run`, title: `${name} the run (Space)` });
    setText(button, playing === null ? "▶" : "❚❚");
  }

  return {
    element,
    update,
    toggle,
    play,
    pause,
    changeBy,
    isPlaying: () => playing !== null,
    step: (count) => {
      pause();
      show(model().index + count);
    },
    goTo: (time) => {
      pause();
      store.look((state) => setTime(state, time), "time");
    },
  };
}
