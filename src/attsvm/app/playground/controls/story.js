import { STORY, STORY_END } from "../story.js";
import { setSetting, setTrained } from "../state/actions.js";
import { node, setAttributes, setText } from "../view/dom.js";
import { choiceButtons } from "./fields.js";

const MEMORY = "attsvm-story";

/** Where a person stood and what they have done, for as long as the tab is open; nothing where that is forbidden. */
function remembered() {
  try {
    const { at, done } = JSON.parse(sessionStorage.getItem(MEMORY));
    return { at: STORY[at] ? at : 0, done: new Set(done.filter((k) => STORY[k])) };
  } catch {
    return { at: 0, done: new Set() };
  }
}

/**
 * The guided story: a card with one step at a time. A step opens with its own scene, and its task ticks itself off when
 * the page sees it done. Leaving keeps the scene on screen; the story goes on later where it was left.
 */
export function createStory({ store, onToggle, onLeave }) {
  const memory = remembered();
  let open = false;
  let first = null;

  const count = node("span", { class: "story-count" });
  const dots = STORY.map((step, k) =>
    node("button", { type: "button", "aria-label": step.title, onclick: () => enter(k) }),
  );
  const leaveButton = node("button", { type: "button", class: "plain", onclick: () => leave() }, "Leave");
  const title = node("h2", { id: "story-title", tabindex: -1 }, "Story");
  const text = node("p", { class: "story-text" });
  const tick = node("span", { class: "tick", "aria-hidden": "true" });
  const task = node("span", {});
  const measure = node("span", { class: "story-measure" });
  const status = node("p", { class: "unseen", role: "status" });
  const actions = node("div", { class: "story-actions" });
  const back = node("button", { type: "button", onclick: () => enter(memory.at - 1) }, "Back");
  const next = node("button", { type: "button", onclick: () => goOn() }, "Next");
  const element = node(
    "section",
    { class: "story", "aria-labelledby": "story-title", hidden: true },
    node(
      "header",
      {},
      count,
      node("div", { class: "story-dots", role: "group", "aria-label": "steps of the story" }, dots),
    ),
    title,
    text,
    node("p", { class: "task" }, tick, node("span", {}, task, " ", measure)),
    actions,
    status,
    node("div", { class: "story-walk" }, leaveButton, back, next),
  );
  const chooser = (choices) =>
    choiceButtons({
      label: choices.label,
      choices: choices.values,
      onChoice: (value) =>
        store.change(
          (state) => (choices.setting === "trained" ? setTrained(state, value) : setSetting(state, choices.setting, value)),
          choices.setting,
        ),
    });
  const choosers = STORY.map(({ choices }) => (choices ? chooser(choices) : null));

  function keep() {
    try {
      sessionStorage.setItem(MEMORY, JSON.stringify({ at: memory.at, done: [...memory.done] }));
    } catch {
      // Private windows and some frames forbid it: the story then begins anew with the page.
    }
  }

  /** Open a step with its scene, and tell screen readers by moving the focus to its title. */
  function enter(at) {
    memory.at = Math.max(0, Math.min(STORY.length - 1, at));
    first = null;
    keep();
    const opened = !open;
    open = true;
    setText(status, "");
    setAttributes(element, { hidden: false });
    actions.replaceChildren(...(choosers[memory.at] ? [choosers[memory.at].element] : []));
    setText(title, STORY[memory.at].title);
    setText(text, STORY[memory.at].text);
    setText(task, STORY[memory.at].task);
    store.load(STORY[memory.at].scene(), "story");
    if (opened) onToggle();
    title.focus({ preventScroll: !opened });
  }

  function close() {
    if (!open) return;
    open = false;
    setAttributes(element, { hidden: true });
    onToggle();
  }

  /** A person leaves: the keys go on where the story was called from. */
  function leave() {
    close();
    onLeave();
  }

  function goOn() {
    if (memory.at < STORY.length - 1) enter(memory.at + 1);
    else leave();
  }

  function update({ model }) {
    if (!open) return;
    const step = STORY[memory.at];
    if (first === null) first = model;
    const finished = !model.partial && step.isDone(model, first);
    if (finished && !memory.done.has(memory.at)) {
      memory.done.add(memory.at);
      keep();
      setText(status, `Done: ${step.title}.${memory.at === STORY.length - 1 ? ` ${STORY_END}` : ""}`);
    }
    const done = memory.done.has(memory.at);
    const last = memory.at === STORY.length - 1;
    setText(count, `Story, step ${memory.at + 1} of ${STORY.length}`);
    setText(tick, done ? "✓" : "");
    setAttributes(element, { "data-done": done });
    setText(text, done && last ? STORY_END : step.text);
    setText(measure, done || !step.measure ? "" : `(${step.measure(model, first)})`);
    choosers[memory.at]?.show(model.settings[step.choices.setting]);
    setAttributes(back, { disabled: memory.at === 0 });
    setText(next, last ? "Finish" : done ? "Next" : "Skip");
    setAttributes(next, { class: done ? "primary" : null });
    dots.forEach((dot, k) => {
      const finishedDot = memory.done.has(k);
      setText(dot, finishedDot ? "✓" : String(k + 1));
      setAttributes(dot, {
        "aria-label": `step ${k + 1}, ${STORY[k].title}${finishedDot ? ", done" : ""}`,
        "aria-current": k === memory.at ? "step" : null,
        title: STORY[k].title,
      });
    });
  }

  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
  });

  return { element, update, close, toggle: () => (open ? leave() : enter(memory.at)), isOpen: () => open };
}
