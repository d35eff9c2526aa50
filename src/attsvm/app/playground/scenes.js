import { presetNamed, presetState } from "./presets.js";
import { randomState } from "./state/schema.js";

/** Scenes beside the presets: a preset with other layers. */
export const SCENES = { basins: { preset: "single-input-local", layers: { basin: true } } };

/** The scene of a text, beside the plane: `#scene=text`, with text=..., window=... and ask=... where they are others. */
export const TEXT_SCENE = {
  text: "The cat saw the dog. The dog saw the cat. The cat saw the mouse. The mouse saw the cat. The dog saw the cat.",
  window: 6,
  ask: "The cat saw the dog. The",
};

/** The complete state of a scene, or null where nothing is called so. */
export function sceneState(name) {
  const scene = Object.hasOwn(SCENES, name) ? SCENES[name] : { preset: name, layers: {} };
  if (presetNamed(scene.preset) === undefined) return null;
  const state = presetState(scene.preset);
  return { ...state, view: { ...state.view, layers: { ...state.view.layers, ...scene.layers } } };
}

const OWN_DATA = "Your own data. Drag anything; double click adds a token.";

function randomAdvice({ seed, inputs, tokens, labels }) {
  const told =
    labels === "told"
      ? "The query tells the label, so there is something to learn: Generalization shows what fresh draws make of it."
      : "Nothing that attention sees tells the label, as in the papers' random data.";
  return `Random data, seed ${seed}: ${inputs} ${inputs === 1 ? "input" : "inputs"} of ${tokens} tokens on the unit circle. ${told}`;
}

let known = { key: null, parts: "" };

/** Data, training and runs of the scene that a state came from, as text; computed once for each scene. */
function partsOf(key, original) {
  if (known.key !== key) {
    const { problem, settings, companions } = original();
    known = { key, parts: JSON.stringify([problem, settings, companions]) };
  }
  return known.parts;
}

/**
 * What the page advises, where it comes from, and whether the scene has been changed since: layers and time do not count.
 * @returns {{ advice: string, paper: string, edited: boolean, original: (() => object)|null }} `original` makes the scene
 *   as it was; null for own data.
 */
export function adviceOf(state) {
  const preset = presetNamed(state.preset);
  const own = preset === undefined && state.random === null;
  if (own) return { advice: OWN_DATA, paper: "", edited: false, original: null };
  const original = preset === undefined ? () => randomState(state.random).state : () => presetState(preset.name);
  const key = preset === undefined ? JSON.stringify(state.random) : preset.name;
  const { problem, settings, companions } = state;
  return {
    advice: preset === undefined ? randomAdvice(state.random) : preset.try,
    paper: preset?.paper ?? "",
    edited: partsOf(key, original) !== JSON.stringify([problem, settings, companions]),
    original,
  };
}
