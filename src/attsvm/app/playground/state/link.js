import { withPresetScene } from "../presets.js";
import { SCENES, TEXT_SCENE, sceneState } from "../scenes.js";
import { DISPLAY_KEYS, displayFields, readDisplay } from "./display.js";
import { LIMITS } from "./limits.js";
import { checkedState, randomState } from "./schema.js";

/**
 * The address of the page: what stands behind `#`, as `key=value` joined by `&`.
 *
 *   s=...             the whole state, encoded
 *   scene=NAME        a preset, or one of the scenes of scenes.js
 *   scene=text        the scene of a text; text=..., window=6 and ask=... go with it
 *   random=7          random data of this seed; inputs=3, tokens=4 and labels=told or free go with it
 *   step=40           where the run stands; step=end is its end
 *   lecture, hide=..., speed=2, theme=dark, embed      how it is shown (display.js)
 */
const PLAN_KEYS = ["inputs", "tokens", "labels"];
const TEXT_KEYS = Object.keys(TEXT_SCENE);
const STATE_KEYS = ["s", "scene", "random", ...PLAN_KEYS, ...TEXT_KEYS, "step"];

function toBase64Url(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64Url(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(binary, (letter) => letter.charCodeAt(0)));
}

function sameScene(first, second) {
  return JSON.stringify({ ...first, time: null }) === JSON.stringify({ ...second, time: null });
}

function randomFields({ seed, ...plan }) {
  const plain = randomState({ seed }).state.random;
  const said = PLAN_KEYS.filter((key) => plan[key] !== plain[key]).map((key) => [key, plan[key]]);
  return { random: seed, ...Object.fromEntries(said) };
}

/** The fields that name a state: a scene or a seed where it comes from one, else all of it. */
function stateFields(state) {
  if (state.random !== null) {
    const { state: drawn } = randomState(state.random);
    if (drawn !== null && sameScene(drawn, state))
      return { ...randomFields(state.random), ...(state.time === drawn.time ? {} : { step: state.time ?? "end" }) };
  }
  for (const name of [state.preset, ...Object.keys(SCENES)]) {
    const scene = name === null ? null : sceneState(name);
    if (scene === null || !sameScene(scene, state)) continue;
    return state.time === scene.time ? { scene: name } : { scene: name, step: state.time ?? "end" };
  }
  return { s: toBase64Url(JSON.stringify(state)) };
}

function textFields(typed) {
  const other = TEXT_KEYS.filter((key) => typed[key] !== TEXT_SCENE[key]);
  return { scene: "text", ...Object.fromEntries(other.map((key) => [key, encodeURIComponent(typed[key])])) };
}

/** The text that the address asks for, and what is wrong with it. */
function readTyped(fields) {
  const typed = { ...TEXT_SCENE };
  for (const key of ["text", "ask"]) typed[key] = (fields.get(key) ?? typed[key]).slice(0, LIMITS.typed);
  const window = Number(fields.get("window") ?? typed.window);
  if (!Number.isInteger(window) || window < 1 || window > LIMITS.window)
    return { typed, sentence: `window must be a whole number from 1 to ${LIMITS.window}; got "${fields.get("window").slice(0, 20)}"` };
  return { typed: { ...typed, window }, sentence: null };
}

/** State and display as the text behind `#`. */
export function encodeAddress(state, display) {
  return Object.entries({ ...(display.text === null ? stateFields(state) : textFields(display.text)), ...displayFields(display) })
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
  if (fields.has("random")) {
    const number = (text) => (/^\d{1,9}$/.test(text ?? "") ? Number(text) : text);
    const [inputs, tokens] = ["inputs", "tokens"].map((key) => number(fields.get(key)));
    return randomState({ seed: number(fields.get("random")), inputs, tokens, labels: fields.get("labels") });
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
  if (fields.get("scene") === "text") {
    const { typed, sentence } = readTyped(fields);
    return { state: null, display: { ...display, text: typed }, sentence: sentence ?? complaint };
  }
  const named = ["s", "scene", "random"].some((key) => fields.has(key));
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
    return state === null ? refusal(sentence ?? "the address holds no state: it must name a scene, a seed (random) or a state (s)") : { state, sentence: null };
  }
  try {
    return checkedState(JSON.parse(value));
  } catch {
    return refusal("the state is not valid JSON");
  }
}
