import { randomData } from "../maths/generalization.js";
import { LIMITS, TRAINED_CHOICES, OPTIMIZER_CHOICES, LOSS_CHOICES, RANDOM_LABELS, SHOWN_LAYERS } from "./limits.js";

/**
 * The whole state of the page, as plain JSON:
 *
 *   { version: 1, preset,                    name of the preset it came from, or null
 *     problem: { kind, head, inputs },       kind follows settings.trained: "prompt" for p, else "matrix"
 *     settings: { trained, trainHead, optimizer, loss, stepSize, steps, start: { p, W, K, Q }, startHead },
 *     companions: [ { name?, trained?, trainHead?, optimizer?, loss?, stepSize?, steps?, start?, startHead?,
 *                     problem? } ],         what differs from the settings; a problem of its own where it was cloned
 *     shown: null | [token of each input],   a selection that was clicked; null follows the run
 *     time: null | step,                     null is the end of the run
 *     random: null | { seed, inputs, tokens, labels },   the plan that random data were drawn by
 *     view: { extent, layers: { paths, rays, lines, basin, fresh }, fresh: { spread, seed } } }
 *
 * Tokens count from 0, here as on screen and in Python.
 */
export const STATE_VERSION = 1;

class StateError extends Error {}

function refuse(sentence) {
  throw new StateError(sentence);
}

function isPlain(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function shortened(value) {
  let text;
  try {
    text = JSON.stringify(value);
  } catch {
    text = String(value);
  }
  if (text === undefined) text = String(value);
  return text.length > 40 ? `${text.slice(0, 37)}...` : text;
}

function readNumber(value, name, bound) {
  if (typeof value !== "number" || !Number.isFinite(value) || Math.abs(value) > bound) {
    refuse(`${name} must be a number of size at most ${bound}; got ${shortened(value)}`);
  }
  return value;
}

function readPair(value, name) {
  if (!Array.isArray(value) || value.length !== 2) refuse(`${name} must be two numbers; got ${shortened(value)}`);
  return value.map((entry) => readNumber(entry, name, LIMITS.coordinate));
}

function readMatrix(value, name) {
  if (!Array.isArray(value) || value.length !== 2) refuse(`${name} must be a 2 x 2 matrix; got ${shortened(value)}`);
  return value.map((row) => readPair(row, name));
}

function readChoice(value, name, choices) {
  if (!choices.includes(value)) refuse(`${name} must be one of ${choices.join(", ")}; got ${shortened(value)}`);
  return value;
}

function readInteger(value, name, low, high) {
  if (!Number.isInteger(value) || value < low || value > high) {
    refuse(`${name} must be a whole number from ${low} to ${high}; got ${shortened(value)}`);
  }
  return value;
}

function readList(value, name, low, high) {
  if (!Array.isArray(value) || value.length < low || value.length > high) {
    refuse(`${name} must be a list of ${low} to ${high} entries; got ${shortened(value)}`);
  }
  return value;
}

function readStepSize(value, name) {
  if (readNumber(value, name, LIMITS.stepSize) <= 0) refuse(`${name} must be positive; got ${value}`);
  return value;
}

/** The query that an input gets when none was given: unit vectors, 40 degrees apart. */
export function defaultQuery(index) {
  const angle = (index * 40 * Math.PI) / 180;
  return [Math.cos(angle), Math.sin(angle)].map((entry) => Math.round(entry * 1000) / 1000);
}

function readInput(value, index) {
  const name = `input ${index}`;
  if (!isPlain(value)) refuse(`${name} must be an object with label, query and tokens; got ${shortened(value)}`);
  const tokens = readList(value.tokens, `the tokens of ${name}`, 1, LIMITS.tokens).map((token, t) => {
    const place = `token ${t} of ${name}`;
    if (!isPlain(token)) refuse(`${place} must be an object with x and score; got ${shortened(token)}`);
    const score = token.score === null || token.score === undefined ? null : token.score;
    return {
      x: readPair(token.x, place),
      score: score === null ? null : readNumber(score, `the score of ${place}`, LIMITS.score),
    };
  });
  const query = value.query === null || value.query === undefined ? defaultQuery(index) : value.query;
  return {
    label: readChoice(value.label === undefined ? 1 : value.label, `the label of ${name}`, [1, -1]),
    query: readPair(query, `the query of ${name}`),
    tokens,
  };
}

/** Scores are typed for all tokens or for none: where some are missing they are filled with v . x. */
function settledScores(inputs, head) {
  const typed = inputs.some((input) => input.tokens.some((token) => token.score !== null));
  if (!typed) return inputs;
  const value = (token) => (token.score === null ? head[0] * token.x[0] + head[1] * token.x[1] : token.score);
  return inputs.map((input) => ({
    ...input,
    tokens: input.tokens.map((token) => ({ ...token, score: value(token) })),
  }));
}

function readStart(value, name) {
  if (!isPlain(value)) refuse(`${name} must be an object with p, W, K or Q; got ${shortened(value)}`);
  const start = {};
  if (value.p !== undefined) start.p = readPair(value.p, `${name}.p`);
  for (const key of ["W", "K", "Q"])
    if (value[key] !== undefined) start[key] = readMatrix(value[key], `${name}.${key}`);
  return start;
}

const FIRST_START = {
  p: [0, 0],
  W: [
    [0, 0],
    [0, 0],
  ],
  K: [
    [0.1, 0],
    [0, 0.1],
  ],
  Q: [
    [0, 0],
    [0, 0],
  ],
};

const NAIVE_REFUSED = (name) => `${name}: the naive gradient is computed for a prompt p only`;

function readSettings(value, kind) {
  if (!isPlain(value)) refuse(`settings must be an object; got ${shortened(value)}`);
  const trained = readChoice(
    value.trained === undefined ? (kind === "prompt" ? "p" : "W") : value.trained,
    "settings.trained",
    TRAINED_CHOICES,
  );
  if (kind !== undefined && (kind === "prompt") !== (trained === "p")) {
    refuse(
      `settings.trained must be "p" for a prompt problem, "W" or "KQ" for a matrix problem; got ${shortened(trained)}`,
    );
  }
  if (value.optimizer === "naive" && trained !== "p") refuse(NAIVE_REFUSED("settings.optimizer"));
  if (value.trainHead !== undefined && typeof value.trainHead !== "boolean") {
    refuse(`settings.trainHead must be true or false; got ${shortened(value.trainHead)}`);
  }
  return {
    trained,
    trainHead: value.trainHead === true,
    optimizer: readChoice(
      value.optimizer === undefined ? "normalized" : value.optimizer,
      "settings.optimizer",
      OPTIMIZER_CHOICES,
    ),
    loss: readChoice(value.loss === undefined ? "logistic" : value.loss, "settings.loss", LOSS_CHOICES),
    stepSize: readStepSize(value.stepSize === undefined ? 0.1 : value.stepSize, "settings.stepSize"),
    steps: readInteger(value.steps === undefined ? 1000 : value.steps, "settings.steps", 1, LIMITS.steps),
    start: { ...FIRST_START, ...readStart(value.start === undefined ? {} : value.start, "settings.start") },
    startHead: readPair(
      value.startHead === undefined || value.startHead === null ? [0, 1] : value.startHead,
      "settings.startHead",
    ),
  };
}

function readProblem(value, trained) {
  const head = readPair(value.head === undefined || value.head === null ? [0, 1] : value.head, "problem.head");
  const inputs = settledScores(readList(value.inputs, "problem.inputs", 1, LIMITS.inputs).map(readInput), head);
  return { kind: trained === "p" ? "prompt" : "matrix", head, inputs };
}

function readCompanion(value, index, trained) {
  const name = `companion ${index}`;
  if (!isPlain(value)) refuse(`${name} must be an object; got ${shortened(value)}`);
  const companion = {};
  if (value.name !== undefined) {
    if (typeof value.name !== "string" || value.name.length > 60)
      refuse(`${name}: its name must be a text of at most 60 letters; got ${shortened(value.name)}`);
    companion.name = value.name;
  }
  if (value.trained !== undefined)
    companion.trained = readChoice(value.trained, `trained of ${name}`, TRAINED_CHOICES);
  if (value.problem !== undefined) {
    if (!isPlain(value.problem)) refuse(`the problem of ${name} must be an object; got ${shortened(value.problem)}`);
    companion.problem = readProblem(value.problem, companion.trained ?? trained);
  } else if (companion.trained !== undefined && (companion.trained === "p") !== (trained === "p"))
    refuse(`${name} cannot train ${companion.trained} beside ${trained}: p has a problem of its own`);
  if (value.trainHead !== undefined) companion.trainHead = value.trainHead === true;
  if (value.optimizer !== undefined)
    companion.optimizer = readChoice(value.optimizer, `optimizer of ${name}`, OPTIMIZER_CHOICES);
  if (companion.optimizer === "naive" && (companion.trained ?? trained) !== "p")
    refuse(NAIVE_REFUSED(`optimizer of ${name}`));
  if (value.loss !== undefined) companion.loss = readChoice(value.loss, `loss of ${name}`, LOSS_CHOICES);
  if (value.stepSize !== undefined) companion.stepSize = readStepSize(value.stepSize, `stepSize of ${name}`);
  if (value.steps !== undefined) companion.steps = readInteger(value.steps, `steps of ${name}`, 1, LIMITS.steps);
  if (value.start !== undefined) companion.start = readStart(value.start, `start of ${name}`);
  if (value.startHead !== undefined) companion.startHead = readPair(value.startHead, `startHead of ${name}`);
  return companion;
}

function readShown(value, inputs) {
  if (value === null || value === undefined) return null;
  readList(value, "shown", inputs.length, inputs.length);
  return value.map((token, i) =>
    readInteger(token, `the shown token of input ${i}`, 0, inputs[i].tokens.length - 1),
  );
}

function readView(value) {
  if (!isPlain(value)) refuse(`view must be an object; got ${shortened(value)}`);
  const layers = {};
  const given = value.layers === undefined ? {} : value.layers;
  if (!isPlain(given)) refuse(`view.layers must be an object; got ${shortened(given)}`);
  for (const name of SHOWN_LAYERS) layers[name] = given[name] === undefined ? !["basin", "fresh"].includes(name) : given[name] === true;
  const extent = readNumber(value.extent === undefined ? 1.5 : value.extent, "view.extent", LIMITS.coordinate);
  if (extent <= 0) refuse(`view.extent must be positive; got ${extent}`);
  const fresh = value.fresh === undefined ? {} : value.fresh;
  if (!isPlain(fresh)) refuse(`view.fresh must be an object; got ${shortened(fresh)}`);
  const spread = readNumber(fresh.spread === undefined ? 0.2 : fresh.spread, "view.fresh.spread", LIMITS.coordinate);
  if (spread < 0) refuse(`view.fresh.spread must not be negative; got ${spread}`);
  const seed = readInteger(fresh.seed === undefined ? 1 : fresh.seed, "view.fresh.seed", 0, LIMITS.seed);
  return { extent, layers, fresh: { spread, seed } };
}

/** The plan of random data, as `randomData` takes it. */
function readRandom(value) {
  if (value === null || value === undefined) return null;
  if (!isPlain(value)) refuse(`random must be an object; got ${shortened(value)}`);
  return {
    seed: readInteger(value.seed, "random.seed", 0, LIMITS.seed),
    inputs: readInteger(value.inputs ?? 3, "random.inputs", 1, LIMITS.inputs),
    tokens: readInteger(value.tokens ?? 4, "random.tokens", 2, LIMITS.tokens),
    labels: readChoice(value.labels ?? "told", "random.labels", RANDOM_LABELS),
  };
}

function readState(value) {
  if (!isPlain(value)) refuse(`the state must be an object; got ${shortened(value)}`);
  if (value.version !== undefined && value.version !== STATE_VERSION) {
    refuse(`this page reads states of version ${STATE_VERSION}; got version ${shortened(value.version)}`);
  }
  const problem = value.problem;
  if (!isPlain(problem)) refuse(`problem must be an object with kind, head and inputs; got ${shortened(problem)}`);
  const kind = problem.kind === undefined ? undefined : readChoice(problem.kind, "problem.kind", ["prompt", "matrix"]);
  const settings = readSettings(value.settings === undefined ? {} : value.settings, kind);
  const read = readProblem(problem, settings.trained);
  const companions = value.companions === undefined ? [] : value.companions;
  const time =
    value.time === undefined || value.time === null ? null : readInteger(value.time, "time", 0, LIMITS.steps);
  if (
    value.preset !== undefined &&
    value.preset !== null &&
    (typeof value.preset !== "string" || value.preset.length > 60)
  ) {
    refuse(`preset must be a name; got ${shortened(value.preset)}`);
  }
  return {
    version: STATE_VERSION,
    preset: typeof value.preset === "string" ? value.preset : null,
    problem: read,
    settings,
    companions: readList(companions, "companions", 0, LIMITS.companions).map((each, index) =>
      readCompanion(each, index, settings.trained),
    ),
    shown: readShown(value.shown, read.inputs),
    time: time === null ? null : Math.min(time, settings.steps),
    random: readRandom(value.random),
    view: readView(value.view === undefined ? {} : value.view),
  };
}

/**
 * A checked copy of a state with every field filled in.
 * @returns {{ state: object|null, sentence: string|null }} the sentence says what is wrong; then there is no state
 */
export function checkedState(value) {
  try {
    return { state: readState(value), sentence: null };
  } catch (error) {
    if (error instanceof StateError) return { state: null, sentence: error.message };
    throw error;
  }
}

/** A checked state that shows random data; the sentence says what is wrong with the plan. */
export function randomState(plan) {
  try {
    const random = readRandom(plan);
    return { state: readState({ random, problem: randomData(random), view: { extent: 1.4 } }), sentence: null };
  } catch (error) {
    if (error instanceof StateError) return { state: null, sentence: error.message };
    throw error;
  }
}

/** Whether scores are typed rather than taken from the head. */
export function hasTypedScores(problem) {
  return problem.inputs.some((input) => input.tokens.some((token) => token.score !== null));
}
