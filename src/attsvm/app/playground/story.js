import { significant } from "./format.js";
import { presetState } from "./presets.js";
import { setLayer, setTime } from "./state/actions.js";

const ZERO = [
  [0, 0],
  [0, 0],
];
const START_AT_ZERO = { p: [0, 0], W: ZERO, K: ZERO, Q: ZERO };

/** A scene of a preset, with changes to its settings, and layers that are on. */
function sceneOf(preset, { settings = {}, companions, layers = [], time = null }) {
  let state = presetState(preset);
  state = { ...state, settings: { ...state.settings, ...settings }, companions: companions ?? state.companions };
  for (const name of Object.keys(state.view.layers)) state = setLayer(state, name, layers.includes(name));
  return setTime(state, time);
}

function largestShare(model) {
  return Math.max(...model.attention[0]);
}

function marginOf(model) {
  return model.solution.status === "solved" ? 1 / model.solution.norm : 0;
}

/**
 * The story, step by step. `scene` is what a step opens with, `task` the one thing to do; `isDone` sees it done, from
 * the present picture and from the one that the step opened with; `choices` are buttons for what would else be far away
 * on a small screen, and `measure` says how far one has come.
 * @type {Array<{title: string, text: string, task: string, scene: () => object, isDone: (model: object, first: object) =>
 *   boolean, measure?: (model: object, first: object) => string, choices?: {setting: string, label: string, values:
 *   string[][]}}>}
 */
export const STORY = [
  {
    title: "A soft choice",
    text: "Attention gives every token a share, drawn as its size; the shares add up to 100 %. At first the weights p are zero and all tokens are equal. Training changes p, step by step.",
    task: "Move the slider under the picture, or press ▶, until one token has more than half of the attention.",
    scene: () => sceneOf("lever", { settings: { start: START_AT_ZERO }, layers: ["paths"], time: 0 }),
    isDone: (model) => model.index > 0 && largestShare(model) > 0.5,
  },
  {
    title: "The length grows",
    text: "More attention on the best token always lowers the loss, so training never rests: p keeps growing, and attention comes ever closer to one token alone. Every ring is ten times as far.",
    task: "Go on with the slider until p is longer than 50.",
    scene: () => sceneOf("lever", { settings: { start: START_AT_ZERO }, layers: ["paths"], time: 30 }),
    isDone: (model) => model.run.norm[model.index] > 50,
    measure: (model) => `p has length ${significant(model.run.norm[model.index])}`,
  },
  {
    title: "The margin",
    text: "As p grows, its direction settles: it is the one that separates the selected token from all others by the widest band, the maximum margin of a support vector machine.",
    task: "Make the band a tenth wider: move token 0, the large one, away from the others.",
    scene: () => sceneOf("lever", { settings: { start: START_AT_ZERO }, layers: ["paths", "rays", "lines"] }),
    isDone: (model, first) => marginOf(model) > 1.1 * marginOf(first),
    measure: (model, first) =>
      `the margin is ${significant(marginOf(model))}, ${significant(1.1 * marginOf(first))} is asked for`,
  },
  {
    title: "Support tokens",
    text: "Only the outlined tokens touch the band. These support tokens alone hold the direction; any other token could lie elsewhere, and the limit would be the same.",
    task: "Move token 3, which has no outline, up to the band until it gets one.",
    scene: () => sceneOf("bystander", { layers: ["paths", "rays", "lines"] }),
    isDone: (model) => model.selected[0] === 0 && model.support[0].has(3),
  },
  {
    title: "A local optimum and its basin",
    text: "Token 0 scores best, yet training from the middle ends on token 1 and stays there: a local optimum. The colour of a point says where training that starts there ends; each area is a basin.",
    task: "Move the dashed ring, the start of training, until training ends on token 0.",
    scene: () => sceneOf("optimal-not-reached", { layers: ["paths", "rays", "basin"] }),
    isDone: (model) => model.selected[0] === 0,
    measure: (model) => `training ends on token ${model.selected[0]}`,
  },
  {
    title: "W against (K, Q)",
    text: "Transformers train two factors, W = K Qᵀ. Their direction, so the conjecture goes, is that of the widest margin in another norm, the nuclear one, which favours low rank.",
    task: "Train the factors in place of W, and watch both paths turn to other rays.",
    scene: () => sceneOf("trajectories", { companions: [{ name: "W", trained: "W" }], layers: ["paths", "rays"] }),
    isDone: (model) => model.settings.trained === "KQ",
    choices: {
      setting: "trained",
      label: "what is trained",
      values: [
        ["W", "train W"],
        ["KQ", "train (K, Q)"],
      ],
    },
  },
  {
    title: "When attention is saturated",
    text: "Late in training a share is so near 100 % that single precision rounds it to 1. A naive gradient is then made of rounding errors; computed without cancellation it keeps the direction.",
    task: "Switch to the naive gradient, and see at the end of the run where rounding errors lead.",
    scene: () =>
      sceneOf("single-input-local", {
        settings: { start: { ...START_AT_ZERO, p: [0, -1] } },
        companions: [{ name: "exact gradient", optimizer: "normalized" }],
        layers: ["paths", "rays"],
      }),
    isDone: (model) => model.settings.optimizer === "naive" && model.run.steps[model.index] >= 500,
    choices: {
      setting: "optimizer",
      label: "gradient",
      values: [
        ["normalized", "exact gradient"],
        ["naive", "naive gradient"],
      ],
    },
  },
];

export const STORY_END =
  "That is the whole story: training attention is a support vector machine that selects tokens. Go on with any scene of the menu on top, or with data of your own.";
