import { createCertificatePanel } from "./view/certificate-panel.js";
import { createBars } from "./view/attention-bars.js";
import { THEMES } from "./view/colours.js";
import { createCurves } from "./view/curves.js";
import { node, setAttributes, setText } from "./view/dom.js";
import { createFrameCounter } from "./view/frame-counter.js";
import { presentItem } from "./view/handles.js";
import { createLegend } from "./view/legend.js";
import { createOptimaList } from "./view/local-optima.js";
import { createPage } from "./view/page.js";
import { createPlot, discRadius } from "./view/plot.js";
import { createOpening } from "./controls/opening.js";
import { createPresentation } from "./controls/presentation.js";
import { createReadout } from "./view/readout.js";
import { createNarration } from "./view/narration.js";
import { attachDragging } from "./controls/drag.js";
import { createFreshPanel } from "./controls/fresh-panel.js";
import { createHelp } from "./controls/help.js";
import { createInspector } from "./controls/inspector.js";
import { attachKeyboard } from "./controls/keyboard.js";
import { createLayers } from "./controls/layers.js";
import { createExportMenu } from "./controls/export-menu.js";
import { createStory } from "./controls/story.js";
import { createTextScene } from "./controls/text-scene.js";
import { createTable } from "./controls/table.js";
import { createTimeline } from "./controls/timeline.js";
import { createToolbar } from "./controls/toolbar.js";
import { createTraining } from "./controls/training.js";
import { PRESETS, presetState } from "./presets.js";
import { snippetOf } from "./export/snippet.js";
import { capital } from "./format.js";
import { TEXT_SCENE, adviceOf } from "./scenes.js";
import { setLayer, setTime, showSelection } from "./state/actions.js";
import { createAnalyst } from "./state/analysis.js";
import { createCertifier } from "./state/certifier.js";
import { LIMITS } from "./state/limits.js";
import { createBackgroundWork } from "./state/background.js";
import { encodeAddress, readAddress, stateFrom } from "./state/link.js";
import { randomState } from "./state/schema.js";
import { createStore } from "./state/store.js";
import { createPublisher } from "./state/publish.js";
import { styleText } from "./style.js";

const PAUSE = 700;

/**
 * What the page opens with: the state in the address, or the one given, or the first preset; how it is shown; and a
 * sentence if something of it was no good.
 */
function openingOf(given, address) {
  const first = presetState(PRESETS[0].name);
  const asked = readAddress(address);
  if (asked.state !== null) return asked;
  if (given === undefined || given === null || given === "")
    return { ...asked, state: first, fresh: asked.sentence === null && asked.display.text === null };
  const { state, sentence } = stateFrom(given);
  return { state: state ?? first, display: asked.display, sentence: asked.sentence ?? sentence };
}

/** Where the documentation is, as the element says in data-docs, relative to the page; null where it says nothing. */
function documentationOf(element) {
  return element.dataset.docs ? new URL(element.dataset.docs, document.baseURI) : null;
}

/**
 * Put the playground into an element.
 * @param {HTMLElement} element
 * @param {{ state?: string|object, address?: string, host?: "page"|"server"|"widget"|"static",
 *           certify?: (problem: object, selected: number[], norm: string, weights: number[]) => Promise<object>,
 *           onChange?: (state: object, selected: number[]) => void }} options
 * @returns {{ getState: () => object, setState: (value: object|string) => string|null, getSelected: () => number[],
 *             destroy: () => void, ready: Promise<void>, frames: { start: () => void, stop: () => object } }}
 *   `setState` answers with a sentence where the state is no good, and then changes nothing.
 */
export function mount(element, options = {}) {
  const host = options.host ?? "page";
  const ownsAddress = host !== "widget";
  const opening = openingOf(options.state, options.address ?? "");
  // A page in a frame of another page leaves the wheel to that page.
  if (ownsAddress && window.parent !== window && !/[#&]embed=0/.test(options.address ?? "")) opening.display.embed = true;
  const fresh = Boolean(opening.fresh) && ownsAddress;
  const store = createStore(opening.state);
  if (fresh) store.look((state) => setTime(state, 0), "time");
  const analyst = createAnalyst();
  const cleanups = [];
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  const forced = matchMedia("(forced-colors: active)");
  let model = null;
  let preset = opening.state.preset;
  let focus = "token-0-0";
  let moving = false;
  let radius = discRadius(opening.state);
  let size = { width: 600, height: 600 };
  let scheduled = 0;
  let strokeTimer = null;
  let presentation = null;
  let resolveReady;
  const ready = new Promise((resolve) => {
    resolveReady = resolve;
  });

  const display = () => presentation?.current() ?? opening.display;
  // Where the system forces its colours, pictures follow its paper, whatever the page was told.
  const theme = () => THEMES[(!forced.matches && display().theme) || (darkness.matches ? "dark" : "light")];
  const schedule = () => {
    if (scheduled === 0) scheduled = requestAnimationFrame(frame);
  };
  const background = createBackgroundWork(schedule);
  const certifier = createCertifier(options.certify, schedule);
  const publisher = createPublisher({ first: opening.state, display, ownsAddress, onChange: options.onChange });
  const frames = createFrameCounter();

  const narrow = element.clientWidth > 0 && element.clientWidth < 720;
  const dialogs = node("div", { class: "dialogs" });
  const help = createHelp();
  dialogs.append(help.element);
  const plot = createPlot();
  const timeline = createTimeline({
    store,
    model: () => model,
    speed: () => display().speed,
    onSpeed: (speed) => presentation.set({ speed }),
    onPause: schedule,
  });
  const exportMenu = createExportMenu({
    model: () => model,
    snippet: () => (display().text === null ? snippetOf(model) : textScene.snippet()),
    theme,
    plot: plot.element,
    say: (text) => narration.say(text),
    dialogs,
    address: () => `${ownsAddress ? location.href.split("#")[0] : ""}#${encodeAddress(model.state, display())}`,
    onProblem: ({ problem, trainHead, extent }) => setState({ problem, settings: { trainHead }, view: { extent } }),
  });
  const story = createStory({
    store,
    onToggle: followStory,
    onLeave: () => root.querySelector(".story-button").focus({ preventScroll: true }),
  });
  const textScene = createTextScene({ onChange: (text) => presentation.set({ text }) });
  cleanups.push(textScene.stop);
  const parts = {
    dialogs,
    plot,
    timeline,
    story,
    textScene,
    inspector: createInspector({ store, focused: () => focus, focusItem }),
    layers: createLayers({ store }),
    legend: createLegend({ open: !narrow && !opening.display.lecture && !opening.display.embed && innerHeight > 520 }),
    readout: createReadout({ onFollow: () => store.change((state) => showSelection(state, null), "shown") }),
    bars: createBars(),
    curves: createCurves(),
    optima: createOptimaList({
      onShow: (selected) => store.change((state) => setLayer(showSelection(state, selected), "basin", true), "shown"),
      onBasin: (on) => store.look((state) => setLayer(state, "basin", on), "layer"),
    }),
    certificate: createCertificatePanel({ canCertify: Boolean(options.certify) }),
    fresh: createFreshPanel({ store }),
    training: createTraining({ store }),
    table: createTable({ store, onRandom: (plan) => store.load(randomState(plan).state, "preset") }),
    toolbar: createToolbar({
      store,
      onPreset: (name) => (name === "text" ? openText() : store.load(presetState(name), "preset")),
      onTheme: switchTheme,
      onLecture: () => presentation.toggleLecture(),
      onHelp: help.open,
      onStory: story.toggle,
      exportMenu: exportMenu.element,
    }),
  };
  const { dialogs: _dialogs, plot: _plot, ...updated } = parts;
  const page = createPage(parts, { narrow, docs: documentationOf(element) });

  const narration = createNarration(page);

  const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(styleText);
  root.adoptedStyleSheets = [sheet];
  root.replaceChildren(page.element);
  element.dataset.lmSuppressShortcuts = "true";
  setAttributes(page.element, { "data-host": host });
  const opener = createOpening({ fresh, root: page.element, timeline, onChange: schedule });
  presentation = createPresentation(page, { host: element, first: opening.display, onChange: schedule });

  /** The story takes the place of the advice. */
  function followStory() {
    setAttributes(page.element, { "data-story": story.isOpen() });
    measure();
    schedule();
  }

  function openText() {
    story.close();
    timeline.pause();
    presentation.set({ text: TEXT_SCENE });
  }

  function closeText() {
    if (display().text !== null) presentation.set({ text: null });
  }

  function switchTheme() {
    presentation.set({ theme: theme().name === "dark" ? "light" : "dark" });
  }

  function setFocus(key) {
    focus = key;
    schedule();
  }

  function focusItem(key) {
    setFocus(key);
    requestAnimationFrame(() =>
      requestAnimationFrame(() => root.querySelector(`[data-item="${key}"]`)?.focus({ preventScroll: true })),
    );
  }

  /** A button that was pressed and is now disabled would keep the keys to itself; the page takes them back. */
  function takeFocus() {
    page.element.tabIndex = -1;
    page.element.addEventListener("blur", () => page.element.removeAttribute("tabindex"), { once: true });
    page.element.focus({ preventScroll: true });
  }

  function setMoving(now) {
    if (moving === now) return;
    moving = now;
    schedule();
  }

  /** A run of arrow keys is one entry to undo; it ends after a pause. */
  function keyStroke() {
    clearTimeout(strokeTimer);
    setMoving(true);
    strokeTimer = setTimeout(() => {
      setMoving(false);
      store.endStroke();
    }, PAUSE);
  }

  function frame() {
    scheduled = 0;
    const state = store.get();
    if (!moving) radius = discRadius(state);
    model = { ...analyst.analyse(state, moving), ...background.results(state, radius) };
    if (model.optima !== null && !moving) {
      const shownKey = model.shown.join("-");
      model.otherRays = model.optima.selections
        .filter(({ selected }) => selected.join("-") !== shownKey)
        .slice(0, 6)
        .map(({ weights }) => weights);
    }
    focus = presentItem(model, focus);
    const scene = { model, theme: theme(), certificate: certifier.state, display: display(), storyOpen: story.isOpen() };
    setAttributes(page.element, { "data-theme": scene.theme.name });
    if (scene.display.text !== null) {
      for (const view of [parts.toolbar, textScene]) view.update(scene);
      publisher.want(model, false);
      resolveReady();
      return;
    }
    plot.update({ ...scene, size, radius, focus });
    for (const view of Object.values(updated)) view.update(scene);
    const { advice, paper, edited } = adviceOf(state);
    const { problem, settings } = opening.state;
    opener.follow({ time: state.time, changed: state.problem !== problem || state.settings !== settings });
    const opened = opener.words();
    setText(page.advice, opened ?? advice);
    setText(page.paper, opened === null ? paper : "");
    page.edited.style.setProperty("visibility", edited ? "visible" : "hidden");
    narration.explain(model, { moving, playing: timeline.isPlaying() });
    background.want(state, radius, moving || timeline.isPlaying());
    certifier.want(model, moving, timeline.isPlaying());
    if (model.pending) schedule();
    publisher.want(model, moving || opener.isOwn());
    if (root.activeElement?.disabled) takeFocus();
    if (!moving && !timeline.isPlaying()) page.keepReachable();
    frames.tick();
    // The first sentence is the longest: what follows it leaves the picture in its place.
    if (opener.begin()) page.advised.style.setProperty("min-height", `${page.advised.offsetHeight}px`);
    resolveReady();
  }

  /** The picture takes the room that it is given, or where the style leaves its height open most of the window's. */
  function measure() {
    const { clientWidth: width, clientHeight } = page.stage;
    if (width < 1) return;
    const given = getComputedStyle(page.stage).getPropertyValue("--fills-height").trim() === "1";
    const room = host === "widget" ? 620 : Math.max(380, innerHeight - 312);
    const height = given ? Math.max(160, clientHeight) : Math.round(Math.min(width, room, 1150));
    if (width === size.width && height === size.height) return;
    size = { width, height };
    schedule();
  }

  function setState(value) {
    const { state, sentence } = stateFrom(value);
    if (state === null) {
      narration.say(sentence);
      return sentence;
    }
    closeText();
    if (JSON.stringify(state) !== JSON.stringify(store.get())) store.load(state, "state");
    return null;
  }

  cleanups.push(
    store.subscribe((state, what) => {
      if (what === "full") {
        narration.say(`No more can be added: the page computes with at most ${LIMITS.inputs} inputs of ${LIMITS.tokens} tokens each.`);
        return;
      }
      // Undo and redo may lead to another preset as well.
      if (what === "preset" || what === "state") story.close();
      if (what === "preset" || what === "state" || what === "story" || preset !== state.preset) {
        preset = state.preset;
        closeText();
        page.advised.style.removeProperty("min-height");
        narration.forget();
        timeline.pause();
        focus = "token-0-0";
      }
      schedule();
    }),
  );
  attachDragging(plot.element, {
    plane: plot.plane,
    store,
    onFocus: setFocus,
    onMoving: setMoving,
    currentInput: () => (/^(token|query)-/.test(focus) ? Number(focus.split("-")[1]) : 0),
  });
  const stopKeyboard = attachKeyboard(page.element, {
    store,
    model: () => model,
    plane: plot.plane,
    timeline,
    openHelp: help.open,
    onLecture: presentation.toggleLecture,
    focusItem,
    onStroke: keyStroke,
    alone: ownsAddress,
    onPlane: () => display().text === null,
  });
  cleanups.push(stopKeyboard);
  // On the stage: a listener on the picture itself would let it take the focus, with a frame, at every click.
  page.stage.addEventListener("focusin", (event) => {
    const item = event.target.closest("[data-item]");
    if (item !== null && item.dataset.item !== focus) setFocus(item.dataset.item);
  });
  page.back.addEventListener("click", () => store.load(adviceOf(store.get()).original(), "preset"));
  const observer = new ResizeObserver(measure);
  observer.observe(page.stage);
  cleanups.push(() => observer.disconnect());
  const listen = (target, type, listener) => {
    target.addEventListener(type, listener);
    cleanups.push(() => target.removeEventListener(type, listener));
  };
  listen(window, "resize", () => {
    page.advised.style.removeProperty("min-height");
    presentation.apply();
    measure();
  });
  listen(document, "fullscreenchange", presentation.followFullScreen);
  listen(page.element, "refused", (event) => narration.say(`${capital(event.detail)}.`));
  listen(page.element, "dragover", (event) => event.preventDefault());
  listen(page.element, "drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length > 0) exportMenu.open(event.dataTransfer.files[0]);
  });
  listen(darkness, "change", schedule);
  listen(forced, "change", schedule);
  if (ownsAddress) {
    listen(window, "hashchange", () => {
      const asked = readAddress(location.hash);
      // An address that names no scene leaves the one on screen.
      const kept = asked.state === null && location.hash !== "" ? display().text : null;
      presentation.set({
        ...asked.display,
        embed: asked.display.embed || opening.display.embed,
        text: asked.display.text ?? kept,
      });
      if (asked.state !== null) setState(asked.state);
      else if (location.hash === "") setState(opening.state); // the Back button, to where the page was opened
      if (asked.sentence !== null) narration.say(`${asked.sentence}.`);
    });
  }
  measure();
  schedule();
  if (opening.sentence !== null) narration.say(`${opening.sentence}. The first preset is shown instead.`);

  return {
    getState: () => JSON.parse(JSON.stringify(store.get())),
    setState,
    getSelected: () => (model === null ? [] : [...model.selected]),
    ready,
    frames,
    destroy() {
      cancelAnimationFrame(scheduled);
      scheduled = -1;
      clearTimeout(strokeTimer);
      narration.stop();
      opener.stop();
      page.stop();
      publisher.stop();
      timeline.pause();
      background.stop();
      certifier.stop();
      for (const cleanup of cleanups) cleanup();
      root.replaceChildren();
    },
  };
}
