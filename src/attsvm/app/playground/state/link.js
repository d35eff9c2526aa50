import { presetNamed, presetState, withPresetScene } from "../presets.js";
import { DISPLAY_KEYS, displayFields, readDisplay } from "./display.js";
import { LIMITS } from "./limits.js";
import { checkedState } from "./schema.js";

/**
 * The address of the page: what stands behind `#`, as `key=value` joined by `&`.
 *
 *   s=...             the whole state, encoded
 *   scene=NAME        a preset, or one of the scenes below
 *   step=40           where the run stands; step=end is its end
 *   lecture, hide=..., speed=2, theme=dark, embed      how it is shown (display.js)
 */
const STATE_KEYS = ["s", "scene", "step"];

/** Scenes beside the presets: a preset with other layers. */
const SCENES = { basins: { preset: "single-input-local", layers: { basin: true } } };

function toBase64Url(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (letter) => letter.charCodeAt(0)));
}

/** The complete state of a scene, or null where nothing is called so. */
export function sceneState(name) {
  const scene = Object.hasOwn(SCENES, name) ? SCENES[name] : { preset: name, layers: {} };
  if (presetNamed(scene.preset) === undefined) return null;
  const state = presetState(scene.preset);
  return { ...state, view: { ...state.view, layers: { ...state.view.layers, ...scene.layers } } };
}

function sameScene(first, second) {
  return JSON.stringify({ ...first, time: null }) === JSON.stringify({ ...second, time: null });
}

/** The fields that name a state: a scene where it is one, else all of it. */
function stateFields(state) {
  for (const name of [state.preset, ...Object.keys(SCENES)]) {
    const scene = name === null ? null : sceneState(name);
    if (scene === null || !sameScene(scene, state)) continue;
    return state.time === scene.time ? { scene: name } : { scene: name, step: state.time ?? "end" };
  }
  return { s: toBase64Url(JSON.stringify(state)) };
}

/** State and display as the text behind `#`. */
export function encodeAddress(state, display) {
  return Object.entries({ ...stateFields(state), ...displayFields(display) })
    .map(([key, value]) => (value === "" ? key : `${key}=${value}`))
    .join("&");
}

function fieldsOf(text) {
  const fields = new Map();
  for (const piece of text.replace(/^#/, "").split("&")) {
    const [key, ...rest] = piece.split("=");
    let value = rest.join("=");
    try {
      value = decodeURIComponent(value);
    } catch {
      // Not written by an encoder: it stays as it is, and is judged as such.
    }
    if (key !== "") fields.set(key, value);
  }
  return fields;
}

function refusal(sentence) {
  return { state: null, sentence };
}

function codedState(code) {
  try {
    return { value: JSON.parse(fromBase64Url(code)), sentence: null };
  } catch {
    return {
      value: null,
      sentence: "the state in the address is damaged and cannot be read; the link may have been cut off",
    };
  }
}

function namedState(fields) {
  if (fields.has("s")) {
    const { value, sentence } = codedState(fields.get("s"));
    return sentence === null ? checkedState(withPresetScene(value)) : refusal(sentence);
  }
  const name = fields.get("scene");
  const state = sceneState(name);
  return state === null ? refusal(`no scene is called "${name.slice(0, 40)}"`) : { state, sentence: null };
}

function atStep({ state, sentence }, step) {
  if (state === null || step === undefined) return { state, sentence };
  if (step === "end") return { state: { ...state, time: null }, sentence };
  if (!/^\d{1,9}$/.test(step))
    return { state, sentence: `step must be a whole number or "end"; got "${step.slice(0, 20)}"` };
  return { state: { ...state, time: Math.min(Number(step), state.settings.steps) }, sentence };
}

/**
 * Read what stands behind `#`.
 * @returns {{ state: object|null, display: object, sentence: string|null }} no state where it names none, or a bad one;
 *   the sentence says what is wrong.
 */
export function readAddress(text) {
  if (text.length > LIMITS.text) {
    return { ...refusal(`the address is longer than ${LIMITS.text} letters`), display: readDisplay(new Map()).display };
  }
  const fields = fieldsOf(text);
  const { display, sentence: complaint } = readDisplay(fields);
  const unknown = [...fields.keys()].find((key) => !STATE_KEYS.includes(key) && !DISPLAY_KEYS.includes(key));
  const named = fields.has("s") || fields.has("scene");
  const found = named ? atStep(namedState(fields), fields.get("step")) : refusal(null);
  const stray =
    unknown === undefined
      ? null
      : `the address names "${unknown.slice(0, 20)}"; it may name ${[...STATE_KEYS, ...DISPLAY_KEYS].join(", ")}`;
  return { state: found.state, display, sentence: found.sentence ?? complaint ?? stray };
}

/** A state given as an object, as JSON, or as the text behind `#`. */
export function stateFrom(value) {
  if (typeof value !== "string") return checkedState(withPresetScene(value));
  if (!value.trimStart().startsWith("{")) {
    const { state, sentence } = readAddress(value);
    return state === null ? refusal(sentence ?? "the address holds no state: it must begin with #s= or #scene=") : { state, sentence: null };
  }
  try {
    return checkedState(JSON.parse(value));
  } catch {
    return refusal("the state is not valid JSON");
  }
}
