import { coordinate } from "../format.js";
import { node, setAttributes } from "../view/dom.js";

/**
 * A field for one number. It commits on Enter, on leaving it, and on its arrows; what is no number within the bounds is
 * marked and not taken, and an event `refused` says why.
 */
export function numberField({ label, low, high, step = "any", positive = false, whole = false, onValue }) {
  const input = node("input", { type: "number", step, "aria-label": label, inputmode: "decimal", autocomplete: "off" });

  function read() {
    const value = Number(input.value);
    const good =
      input.value.trim() !== "" &&
      Number.isFinite(value) &&
      value >= low &&
      value <= high &&
      (!positive || value > 0) &&
      (!whole || Number.isInteger(value));
    return good ? value : null;
  }

  function commit() {
    const value = read();
    const sentence = `${label} must be a ${whole ? "whole " : ""}number from ${low} to ${high}${positive ? ", above 0" : ""}`;
    setAttributes(input, { "aria-invalid": value === null ? "true" : null, title: value === null ? sentence : null });
    if (value === null) input.dispatchEvent(new CustomEvent("refused", { detail: sentence, bubbles: true }));
    else if (input.value !== input.defaultValue) onValue(value);
  }

  // Browsers drop a decimal comma without a word, and 1,5 would become 15.
  input.addEventListener("beforeinput", (event) => {
    if (!event.data?.includes(",")) return;
    event.preventDefault();
    document.execCommand("insertText", false, event.data.replaceAll(",", "."));
  });
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
    if (event.key === "Escape") input.value = input.defaultValue;
  });

  /** Show a value, at most four decimals or digits of it, unless a person is just typing another one. */
  function show(value) {
    const text = coordinate(value);
    if (input.defaultValue === text && (input.value === text || isEdited())) return;
    input.defaultValue = text;
    input.value = text;
    setAttributes(input, { "aria-invalid": null, title: null });
  }

  function isEdited() {
    return input.getRootNode().activeElement === input && input.value !== input.defaultValue;
  }

  return { input, show };
}

/** A row of buttons of which one is pressed. */
export function choiceButtons({ label, choices, onChoice }) {
  const buttons = choices.map(([value, words, hint]) =>
    node("button", { type: "button", title: hint ?? null, "data-value": value, onclick: () => onChoice(value) }, words),
  );
  const element = node("div", { class: "choices", role: "group", "aria-label": label }, buttons);

  function show(value, disabled = []) {
    for (const button of buttons) {
      setAttributes(button, {
        "aria-pressed": String(button.dataset.value === value),
        disabled: disabled.includes(button.dataset.value),
      });
    }
  }

  return { element, show };
}

export function labelled(words, control) {
  return node("div", { class: "field" }, node("span", { class: "field-name", "aria-hidden": "true" }, words), control);
}
