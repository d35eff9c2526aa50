import { PRESETS, presetNamed } from "../presets.js";
import { node, setAttributes, setText, shape } from "../view/dom.js";

/** Four corners, the sign of full screen, which many fonts lack. */
function corners() {
  const path = "M1 5V1H5M9 1H13V5M13 9V13H9M5 13H1V9";
  const line = shape("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 1.6 });
  return shape("svg", { viewBox: "0 0 14 14", width: 14, height: 14, "aria-hidden": "true" }, line);
}

/** The line on top: presets, undo, redo, reset, share, theme, help. */
export function createToolbar({ store, onPreset, onTheme, onLecture, onHelp, onStory, exportMenu }) {
  const groups = [...new Set(PRESETS.map((preset) => preset.group))];
  const select = node(
    "select",
    { "aria-label": "preset", onchange: () => onPreset(select.value) },
    node("option", { value: "", disabled: true, hidden: true }, "own data"),
    groups.map((group) =>
      node(
        "optgroup",
        { label: group },
        PRESETS.filter((preset) => preset.group === group).map((preset) =>
          node("option", { value: preset.name }, preset.title),
        ),
      ),
    ),
    node("optgroup", { label: "Text" }, node("option", { value: "text" }, "What a layer learns from text")),
  );
  const walk = (by, words, sign) =>
    node(
      "button",
      { type: "button", class: "icon", "aria-label": words, title: words, onclick: () => onPreset(neighbour(by)) },
      sign,
    );
  const undo = node(
    "button",
    { type: "button", class: "icon of-plane", title: "undo (Ctrl Z)", "aria-label": "undo", onclick: () => store.undo() },
    "↶",
  );
  const redo = node(
    "button",
    { type: "button", class: "icon of-plane", title: "redo (Ctrl Shift Z)", "aria-label": "redo", onclick: () => store.redo() },
    "↷",
  );
  const reset = node(
    "button",
    { type: "button", class: "of-plane", title: "back to the preset as it was loaded", onclick: () => store.reset() },
    "Reset",
  );
  const theme = node("button", { type: "button", class: "icon", onclick: onTheme });
  const lecture = node("button", { type: "button", class: "icon", "aria-label": "lecture", onclick: onLecture }, corners());
  const own = node(
    "a",
    { class: "own-page", target: "_blank", rel: "noopener", onclick: () => setAttributes(own, { href: ownAddress() }) },
    "Whole page ↗",
  );
  const help = node(
    "button",
    { type: "button", class: "icon", "aria-label": "help", title: "help (?)", onclick: onHelp },
    "?",
  );
  const storyButton = node(
    "button",
    { type: "button", class: "story-button", title: "a guided story in seven steps", onclick: onStory },
    "Story",
  );
  const element = node(
    "header",
    { class: "toolbar" },
    node("h1", {}, node("span", { class: "brand" }, "attsvm"), node("span", { class: "rest-of-title" }, " playground")),
    storyButton,
    node("div", { class: "preset" }, walk(-1, "previous preset", "‹"), select, walk(1, "next preset", "›")),
    node("div", { class: "tools" }, undo, redo, reset, exportMenu, lecture, theme, own, help),
  );

  function neighbour(by) {
    const at = PRESETS.findIndex((preset) => preset.name === store.get().preset);
    return PRESETS[(Math.max(at, by > 0 ? -1 : 0) + by + PRESETS.length) % PRESETS.length].name;
  }

  /** This page outside the frame that it stands in, with all its panels. */
  function ownAddress() {
    return location.href.replace(/([#&])embed(=[^&]*)?&?/g, "$1");
  }

  function update({ model, theme: now, display, storyOpen }) {
    setAttributes(storyButton, { "aria-expanded": String(storyOpen) });
    const name = display.text !== null ? "text" : presetNamed(model.state.preset) ? model.state.preset : "";
    setText(select.options[0], model.state.random === null ? "own data" : `random data, seed ${model.state.random.seed}`);
    if (select.value !== name) select.value = name;
    setAttributes(undo, { disabled: !store.canUndo() });
    setAttributes(redo, { disabled: !store.canRedo() });
    setAttributes(lecture, {
      "aria-pressed": String(display.lecture),
      title: `${display.lecture ? "leave the lecture" : "lecture: full screen, large type"} (F)`,
    });
    setAttributes(own, { hidden: !display.embed, href: display.embed ? ownAddress() : null });
    const other = now.name === "dark" ? "light" : "dark";
    setAttributes(theme, { "aria-label": `switch to ${other} colours`, title: `switch to ${other} colours` });
    setText(theme, now.name === "dark" ? "☀" : "☾");
  }

  return { element, update };
}
