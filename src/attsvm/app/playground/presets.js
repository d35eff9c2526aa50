import { EXAMPLE_DATA } from "./preset-data.js";
import { checkedState } from "./state/schema.js";

/** A key matrix of size 0.1, so that K(0) Q(0)^T = 0 with Q(0) = 0 is no saddle. */
const SMALL_KEY = [
  [0.057, -0.083],
  [0.042, 0.109],
];
const NO_QUERY = [
  [0, 0],
  [0, 0],
];

function exampleProblem(name) {
  const { kind, head, inputs } = EXAMPLE_DATA[name];
  return { kind, head, inputs };
}

function exampleStarts(name, main) {
  const { starts } = EXAMPLE_DATA[name];
  return { start: { p: starts[main] }, companions: starts.filter((_, k) => k !== main).map((p) => ({ start: { p } })) };
}

function oneInput(tokens) {
  return {
    kind: "prompt",
    head: [0, 1],
    inputs: [{ label: 1, query: null, tokens: tokens.map(([x1, x2, score]) => ({ x: [x1, x2], score })) }],
  };
}

/** The comparison of losses with C = 10: with the example's own C = 1 all paths are one. */
const LOSS_PROBLEM = exampleProblem("loss-comparison");
LOSS_PROBLEM.inputs = LOSS_PROBLEM.inputs.map((input, i) => ({
  ...input,
  tokens: input.tokens.map((token) => (i === 0 && token.score === 1 ? { ...token, score: 10 } : token)),
}));

const FACTORS = { trained: "KQ", start: { K: SMALL_KEY, Q: NO_QUERY } };

const SIX_STARTS_GLOBAL = exampleStarts("single-input-global", 5);
const SIX_STARTS_LOCAL = exampleStarts("single-input-local", 4);
const SIX_STARTS_MULTI = exampleStarts("multi-input", 5);

/**
 * What can be loaded by name. `try` is two sentences on what to do; `paper` says where it comes from.
 * @type {Array<{name: string, title: string, group: string, paper: string, try: string, state: object}>}
 */
export const PRESETS = [
  {
    name: "two-inputs",
    title: "First look: two inputs",
    group: "Start here",
    paper: "attsvm's own example",
    try: "Drag any token and watch the path of descent bend towards the ray of its max-margin solution. Then move a query, the diamond, and see both rays turn.",
    state: {
      problem: exampleProblem("two-inputs"),
      settings: { trained: "W", steps: 2000, start: { W: NO_QUERY, K: SMALL_KEY, Q: NO_QUERY } },
      companions: [],
      view: { extent: 2.1, layers: { lines: false } },
    },
  },
  {
    name: "single-input-global",
    title: "One input, one winner",
    group: "Max-margin token selection",
    paper: "[MMTS, single input], global",
    try: "Six starts, one destination: all paths turn to the ray of token 0, even the one that starts opposite to it. Lower the score of token 2 to 0.5 and the lowest start finds a second destination.",
    state: {
      problem: exampleProblem("single-input-global"),
      settings: { trained: "p", steps: 1000, start: SIX_STARTS_GLOBAL.start },
      companions: SIX_STARTS_GLOBAL.companions,
      view: { extent: 1.7 },
    },
  },
  {
    name: "single-input-local",
    title: "One input, two destinations",
    group: "Max-margin token selection",
    paper: "[MMTS, single input], local",
    try: "The two lowest starts end on token 1, which is only locally optimal, and stay there. Drag the starting point upwards until descent changes its mind, or switch on the basin to see the border.",
    state: {
      problem: exampleProblem("single-input-local"),
      settings: { trained: "p", steps: 1000, start: SIX_STARTS_LOCAL.start },
      companions: SIX_STARTS_LOCAL.companions,
      view: { extent: 1.7 },
    },
  },
  {
    name: "multi-input",
    title: "Three inputs, one prompt",
    group: "Max-margin token selection",
    paper: "[MMTS, several inputs]",
    try: "One direction p has to pick the right token of all three inputs at once, and every start finds the same ray. Find the support token that holds the ray, the one with the outline, and pull it.",
    state: {
      problem: exampleProblem("multi-input"),
      settings: { trained: "p", steps: 1000, start: SIX_STARTS_MULTI.start },
      companions: SIX_STARTS_MULTI.companions,
      view: { extent: 2 },
    },
  },
  {
    name: "descent-vs-normalized",
    title: "Plain against normalized descent",
    group: "Max-margin token selection",
    paper: "[MMTS, gradient against normalized gradient]",
    try: "Compare the two curves of the norm: the plain gradient fades as attention saturates, the normalized one walks on. Multiply the step of the plain one by ten and see how little it helps.",
    state: {
      problem: exampleProblem("multi-input"),
      settings: { trained: "p", steps: 1000, optimizer: "gradient", stepSize: 1, start: { p: [0, 0] } },
      companions: [{ optimizer: "normalized", stepSize: 0.1 }],
      view: { extent: 2 },
    },
  },
  {
    name: "joint-training-tight",
    title: "Prompt and head together: tight",
    group: "Max-margin token selection",
    paper: "[MMTS, joint training], tight",
    try: "The head v is trained too: it turns to (0, 1) while p turns to (4/3, 1/3). Drag the good token of input 2 upwards past 1 and it stops supporting the label margin.",
    state: {
      problem: exampleProblem("joint-training-tight"),
      settings: {
        trained: "p",
        trainHead: true,
        steps: 1000,
        start: { p: [0, -1] },
        startHead: EXAMPLE_DATA["joint-training-tight"].startHead,
      },
      view: { extent: 1.8 },
    },
  },
  {
    name: "joint-training-relaxed",
    title: "Prompt and head together: relaxed",
    group: "Max-margin token selection",
    paper: "[MMTS, joint training], relaxed",
    try: "Input 2 is classified with room to spare, so its attention need not be sharp and p turns to (1, 0). Lower its good token to height 1 and the problem becomes tight again.",
    state: {
      problem: exampleProblem("joint-training-relaxed"),
      settings: {
        trained: "p",
        trainHead: true,
        steps: 1000,
        start: { p: [0, -1] },
        startHead: EXAMPLE_DATA["joint-training-relaxed"].startHead,
      },
      view: { extent: 1.9 },
    },
  },
  {
    name: "loss-comparison",
    title: "Three losses, one limit",
    group: "Max-margin token selection",
    paper: "[MMTS, losses], C = 10",
    try: "Token 1 of input 0 scores 10, that of input 1 only 1, and the three losses take different paths to the same ray. Type 1 instead and the paths become one; with 100 the logistic and exponential runs need twenty thousand steps to turn.",
    state: {
      problem: LOSS_PROBLEM,
      settings: { trained: "p", steps: 1000, loss: "logistic", start: { p: [0, 0] } },
      companions: [{ loss: "exponential" }, { loss: "linear" }],
      view: { extent: 1.8 },
    },
  },
  {
    name: "trajectories",
    title: "W against (K, Q)",
    group: "Transformers as SVMs",
    paper: "[TaSVM, trajectories]",
    try: "Training W follows the Frobenius rays (solid), training its factors K and Q the nuclear ones (dashed). Turn one query towards the other and watch the two pairs of rays meet.",
    state: {
      problem: exampleProblem("trajectories"),
      settings: { trained: "W", steps: 2000, start: { W: NO_QUERY, K: SMALL_KEY, Q: NO_QUERY } },
      companions: [FACTORS],
      view: { extent: 1.9 },
    },
  },
  {
    name: "hyperplanes",
    title: "Separating lines",
    group: "Transformers as SVMs",
    paper: "[TaSVM, separating lines]",
    try: "Each input has its own line, orthogonal to W z, between its first token and the others. Push a token over its line and see which selection descent finds instead.",
    state: {
      problem: exampleProblem("hyperplanes"),
      settings: { trained: "W", steps: 2000, start: { W: NO_QUERY, K: SMALL_KEY, Q: NO_QUERY } },
      companions: [FACTORS],
      view: { extent: 2.4 },
    },
  },
  {
    name: "optimal-not-reached",
    title: "Optimal, but not reached",
    group: "Surprises",
    paper: "attsvm's own example",
    try: "Token 0 scores best and could be separated, yet descent from zero settles on token 1 and never comes back. Drag the starting point a little to the left until it does reach token 0.",
    state: {
      problem: oneInput([
        [-1, -0.3, 1],
        [1.1, 0.3, 0.9],
        [0.9, -0.5, 0.7],
        [0, 0, 0],
        [-0.2, -0.7, 0.1],
      ]),
      settings: { trained: "p", steps: 1000, start: { p: [0, 0] } },
      view: { extent: 1.5, layers: { basin: true } },
    },
  },
  {
    name: "bystander",
    title: "A token that does not matter",
    group: "Surprises",
    paper: "attsvm's own example",
    try: "Drag token 3 or 4 anywhere below the dotted margin: the ray does not move at all, since they are no support tokens. Now cross the margin, and the token takes hold of the ray.",
    state: {
      problem: oneInput([
        [0.3, 1, 1],
        [-0.7, 0.2, 0.2],
        [0.9, 0.1, 0.4],
        [0.1, -0.9, 0.1],
        [-0.5, -1, 0.3],
      ]),
      settings: { trained: "p", steps: 1000, start: { p: [0, -0.5] } },
      view: { extent: 1.5 },
    },
  },
  {
    name: "lever",
    title: "A token that turns everything",
    group: "Surprises",
    paper: "attsvm's own example",
    try: "Token 2 has next to no attention at the end of the run, yet it is a support token: drag it and the ray follows. Compare with token 3, which has just as little attention and no say.",
    state: {
      problem: oneInput([
        [0.2, 1, 1],
        [-0.8, 0.4, 0.1],
        [0.9, 0.4, 0.2],
        [0.2, -0.8, 0.5],
      ]),
      settings: { trained: "p", steps: 1000, start: { p: [-0.8, -0.6] } },
      view: { extent: 1.5 },
    },
  },
  {
    name: "out-of-reach",
    title: "The best token is out of reach",
    group: "Surprises",
    paper: "attsvm's own example",
    try: "Token 0 scores best but lies among the others, so no direction can single it out. Drag it outside the shape that the others span, and it becomes the winner.",
    state: {
      problem: oneInput([
        [0.15, 0.1, 1],
        [0.1, 1.1, 0.3],
        [-0.9, -0.6, 0.7],
        [1, -0.6, 0.2],
        [-0.4, -0.2, 0],
      ]),
      settings: { trained: "p", steps: 1000, start: { p: [0.5, 0] } },
      view: { extent: 1.5 },
    },
  },
  {
    name: "optimizers",
    title: "The optimizer picks the direction",
    group: "Surprises",
    paper: "attsvm's own example; a measurement, no theorem",
    try: "The same data and the same loss: sign and spectral descent leave the Frobenius ray for rays of their own norm. Choose another optimizer and watch its margin: each one comes to the best in its own norm.",
    state: {
      problem: exampleProblem("two-inputs"),
      settings: {
        trained: "W",
        optimizer: "normalized",
        steps: 3000,
        start: { W: NO_QUERY, K: SMALL_KEY, Q: NO_QUERY },
      },
      companions: [
        { optimizer: "sign", stepSize: 0.05 },
        { optimizer: "spectral", stepSize: 0.05 },
      ],
      view: { extent: 2.1 },
    },
  },
];

/** The preset of this name, or undefined. */
export function presetNamed(name) {
  return PRESETS.find((preset) => preset.name === name);
}

/**
 * A state that names a preset and says nothing of further runs, with the preset's scene filled in: its settings where it
 * has none of its own, its runs and its view. Anything else stays as it is.
 */
export function withPresetScene(given) {
  const preset = presetNamed(given?.preset);
  if (preset === undefined || given.companions !== undefined) return given;
  return { ...preset.state, ...given, settings: { ...preset.state.settings, ...given.settings } };
}

/** A fresh, complete state of a preset. */
export function presetState(name) {
  const preset = presetNamed(name);
  const { state, sentence } = checkedState({ ...preset.state, version: 1, preset: name });
  if (state === null) throw new Error(`preset ${name}: ${sentence}`);
  return state;
}
