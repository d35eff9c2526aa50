/**
 * Random data in the plane, fresh inputs of the same kind, and how many of them a layer selects right.
 *
 * All draws come from a stream that a seed fixes on every machine: a Weyl sequence through the finalizer of MurmurHash3
 * (Steele, Lea and Flood 2014; Appleby 2011), 32 bits at a time. Random data are rounded to three decimals.
 */

function scrambled(value) {
  let bits = value | 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}

/** Uniform numbers from [0, 1), fixed by a seed. */
function randomStream(seed) {
  let place = scrambled(seed);
  return () => {
    place = (place + 0x9e3779b9) >>> 0;
    return scrambled(place) / 4294967296;
  };
}

function standardNormal(stream) {
  const radius = Math.sqrt(-2 * Math.log(1 - stream()));
  return radius * Math.cos(2 * Math.PI * stream());
}

function onCircle(angle) {
  return [Math.cos(angle), Math.sin(angle)].map((entry) => Math.round(1000 * entry) / 1000 + 0);
}

/** How far queries scatter around the direction that tells the label, in radians. */
const QUERY_SCATTER = 0.35;

/** Directions that all inputs of a data set share: the head v, and where the queries of label +1 point. */
function sharedAngles(stream) {
  return { head: 2 * Math.PI * stream(), told: 2 * Math.PI * stream() };
}

function drawnInput(stream, shared, tokens, labels) {
  const label = stream() < 0.5 ? 1 : -1;
  const scatter = QUERY_SCATTER * standardNormal(stream);
  const free = 2 * Math.PI * stream();
  const query = labels === "free" ? free : shared.told + (label > 0 ? 0 : Math.PI) + scatter;
  return {
    label,
    query: onCircle(query),
    tokens: Array.from({ length: tokens }, () => ({ x: onCircle(2 * Math.PI * stream()), score: null })),
  };
}

/**
 * Random data: the head and all tokens uniform on the unit circle, labels fair. With labels "free" the queries are
 * uniform too, as in the papers, and nothing that attention sees tells the label; with labels "told" a query points to
 * one side for label +1 and to the other for -1, up to a scatter of 0.35 radians.
 * @param {{seed: number, inputs: number, tokens: number, labels: "free"|"told"}} plan
 * @returns {import("./model.js").Problem}
 */
export function randomData({ seed, inputs, tokens, labels }) {
  const stream = randomStream(seed);
  const shared = sharedAngles(stream);
  return {
    kind: "matrix",
    head: onCircle(shared.head),
    inputs: Array.from({ length: inputs }, () => drawnInput(stream, shared, tokens, labels)),
  };
}

/**
 * Inputs that the layer was not trained on. Where the data were drawn at random (`drawn`, the plan of `randomData`) they
 * come from the same distribution; otherwise each is one of the problem's inputs, in turn, with every token and the query
 * moved by independent normal noise of standard deviation `spread`. Given scores stay with their tokens.
 * @param {import("./model.js").Problem} problem
 * @param {{seed: number, count: number, spread: number, drawn: Object|null}} plan
 */
export function freshInputs(problem, { seed, count, spread, drawn }) {
  const stream = randomStream(scrambled(seed) ^ 0x5bd1e995);
  if (drawn) {
    const shared = sharedAngles(randomStream(drawn.seed));
    return Array.from({ length: count }, () => drawnInput(stream, shared, drawn.tokens, drawn.labels));
  }
  const moved = (x) => x.map((entry) => entry + spread * standardNormal(stream));
  return Array.from({ length: count }, (_, k) => {
    const input = problem.inputs[k % problem.inputs.length];
    const query = problem.kind === "matrix" ? moved(input.query) : input.query;
    return { label: input.label, query, tokens: input.tokens.map(({ x, score }) => ({ x: moved(x), score })) };
  });
}

/** Inputs laid out for `selectionsOf`. */
export function layInputs(inputs) {
  const offset = new Int32Array(inputs.length + 1);
  inputs.forEach((input, i) => (offset[i + 1] = offset[i] + input.tokens.length));
  const tokens = new Float64Array(2 * offset[inputs.length]);
  inputs.forEach((input, i) => input.tokens.forEach(({ x }, t) => tokens.set(x, 2 * (offset[i] + t))));
  return { inputs, offset, tokens };
}

/**
 * Which token the layer selects in each input, and whether that is right: whether every token with the largest logit
 * x^T W z is one with the best score Y v^T x (or Y times the score given). Before any step, where all logits are equal,
 * nothing is selected, and that is wrong.
 * @param {{inputs: Object[], offset: Int32Array, tokens: Float64Array}} laid
 * @param {number[]} weights W row by row, or p
 * @param {number[]} head v
 * @returns {{selected: number[], right: boolean[], count: number}}
 */
export function selectionsOf({ inputs, offset, tokens }, weights, head) {
  const selected = new Array(inputs.length);
  const right = new Array(inputs.length);
  let count = 0;
  for (let i = 0; i < inputs.length; i++) {
    const { query, label, tokens: own } = inputs[i];
    const prompt = weights.length === 2;
    const w0 = prompt ? weights[0] : weights[0] * query[0] + weights[1] * query[1];
    const w1 = prompt ? weights[1] : weights[2] * query[0] + weights[3] * query[1];
    let top = -Infinity;
    let best = -Infinity;
    let worst = Infinity; // the worst score among the tokens with the largest logit
    for (let k = offset[i]; k < offset[i + 1]; k++) {
      const given = own[k - offset[i]].score;
      const value = given === null ? head[0] * tokens[2 * k] + head[1] * tokens[2 * k + 1] : given;
      const score = label * value;
      const logit = tokens[2 * k] * w0 + tokens[2 * k + 1] * w1;
      if (score > best) best = score;
      if (logit > top) {
        top = logit;
        selected[i] = k - offset[i];
        worst = score;
      } else if (logit === top && score < worst) worst = score;
    }
    right[i] = worst >= best - 1e-12 * Math.abs(best);
    if (right[i]) count++;
  }
  return { selected, right, count };
}

/** `selectionsOf` of inputs as they come. */
export function selectedRight(inputs, weights, head) {
  return selectionsOf(layInputs(inputs), weights, head);
}
