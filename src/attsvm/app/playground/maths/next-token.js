/**
 * Next-token prediction (arXiv 2403.08081): a layer that reads a window of words and points at the one that comes next.
 *
 * Words have orthonormal embeddings, so that W is its logits: one number for each pair of a word and a last word, and
 * the problem falls apart into one for each last word. Any orthonormal embeddings give the same attention.
 */
import { solvedSystem } from "./linear.js";
import { directionCosine, euclideanLength } from "./numbers.js";
import { leastLengthPoint } from "./quadratic.js";

export const TEXT_LIMITS = { tokens: 400, words: 60, window: 16, steps: 1000 };

const TIED_LOGITS = 1e-6;

/** The words of a text in lower case, and its punctuation marks. */
export function wordsOf(text) {
  return text.toLowerCase().match(/[\p{L}\p{N}_]+(?:['\u2019][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]/gu) ?? [];
}

/**
 * Samples, priority graphs and the limit of training of a text.
 * @returns {{sentence: string|null, words: string[], count: number, leftOut: number, graphs: object[]}} the sentence
 *   says why there is nothing to learn. A graph belongs to a last word: `nodes` are the words of its windows,
 *   `components` stand in priority order, `home` is the component of each node, `strict` the priorities between
 *   components; `svm` and `finite` are logits of W_svm and W_fin for each node.
 */
export function readText(text, window) {
  const tokens = wordsOf(text);
  const words = [...new Set(tokens)];
  const refuse = (sentence) => ({ sentence, words, count: 0, leftOut: 0, graphs: [] });
  if (tokens.length === 0) return refuse("The text is empty.");
  if (tokens.length > TEXT_LIMITS.tokens) return refuse(`The page reads at most ${TEXT_LIMITS.tokens} words; these are ${tokens.length}.`);
  if (words.length > TEXT_LIMITS.words) return refuse(`The page reads at most ${TEXT_LIMITS.words} different words; these are ${words.length}.`);
  if (words.length === 1) return refuse("The text is one word over and over: there is no relation to learn.");
  if (tokens.length <= window) return refuse(`A window of ${window} words and the next one need ${window + 1} words; the text has ${tokens.length}.`);
  const number = new Map(words.map((word, k) => [word, k]));
  const stream = tokens.map((word) => number.get(word));
  const byLast = new Map();
  let count = 0;
  let compared = false;
  for (let at = 0; at + window < stream.length; at++) {
    const ids = stream.slice(at, at + window);
    const label = stream[at + window];
    if (!ids.includes(label)) continue;
    count += 1;
    compared ||= ids.some((id) => id !== label);
    const last = ids[window - 1];
    if (!byLast.has(last)) byLast.set(last, []);
    byLast.get(last).push({ label, tokens: countsOf(ids) });
  }
  const leftOut = stream.length - window - count;
  if (count === 0) return refuse("No next word stands in its window, so there is nothing to point at: take a longer window.");
  if (!compared) return refuse("No window holds anything but the next word: there is no relation to learn.");
  const graphs = [...byLast].map(([last, samples]) => priorities(last, samples));
  graphs.sort((a, b) => b.samples.length - a.samples.length || a.last - b.last);
  for (const graph of graphs) {
    graph.svm = marginLogits(graph);
    graph.finite = finiteLogits(graph);
  }
  return { sentence: null, words, count, leftOut, graphs };
}

/** Each different token with how often it occurs, in order of appearance. */
function countsOf(ids) {
  const counts = new Map();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return [...counts];
}

function emptyTable(size) {
  return Array.from({ length: size }, () => new Array(size).fill(false));
}

/** Which is reached from which along links, at any distance. */
function closure(links) {
  const reach = links.map((row) => [...row]);
  for (let middle = 0; middle < reach.length; middle++)
    for (const row of reach) if (row[middle]) reach[middle].forEach((on, k) => (row[k] ||= on));
  return reach;
}

/** The graph after a last word: an edge from the next word of a sample to every other word of its window. */
function priorities(last, samples) {
  const nodes = [...new Set(samples.flatMap(({ tokens }) => tokens.map(([id]) => id)))].sort((a, b) => a - b);
  const place = new Map(nodes.map((id, k) => [id, k]));
  const links = emptyTable(nodes.length);
  for (const { label, tokens } of samples)
    for (const [id] of tokens) if (id !== label) links[place.get(label)][place.get(id)] = true;
  const reach = closure(links);
  const parts = [];
  const owner = nodes.map((_, k) => {
    const found = parts.findIndex(([first]) => reach[first][k] && reach[k][first]);
    return found < 0 ? parts.push([k]) - 1 : (parts[found].push(k), found);
  });
  const level = parts.map(() => 0);
  for (let round = 0; round < parts.length; round++)
    links.forEach((row, a) =>
      row.forEach((on, b) => {
        if (on && owner[a] !== owner[b]) level[owner[b]] = Math.max(level[owner[b]], level[owner[a]] + 1);
      }),
    );
  const order = parts.map((_, k) => k).sort((a, b) => level[a] - level[b] || parts[a][0] - parts[b][0]);
  const home = owner.map((own) => order.indexOf(own));
  const between = emptyTable(parts.length);
  links.forEach((row, a) => row.forEach((on, b) => (between[home[a]][home[b]] ||= on && home[a] !== home[b])));
  const strict = between.flatMap((row, a) => row.flatMap((on, b) => (on ? [[a, b]] : [])));
  return {
    last,
    nodes,
    home,
    components: order.map((own) => parts[own].map((k) => nodes[k])),
    strict,
    samples: samples.map(({ label, tokens }) => ({
      label: place.get(label),
      tokens: tokens.map(([id, times]) => [place.get(id), times]),
    })),
  };
}

/**
 * The order as small as it can be drawn: single words that beat, and are beaten by, the same components stand together,
 * and priorities that follow from others are left out.
 * @returns {{groups: number[][][], arrows: number[][]}} groups of components, and priorities between groups.
 */
export function collapsedOrder({ components, strict }) {
  const links = emptyTable(components.length);
  for (const [a, b] of strict) links[a][b] = true;
  const reach = closure(links);
  const alike = new Map();
  components.forEach((component, k) => {
    const key = JSON.stringify([reach[k], reach.map((row) => row[k]), component.length === 1 ? -1 : k]);
    alike.set(key, [...(alike.get(key) ?? []), k]);
  });
  const groups = [...alike.values()];
  const first = groups.map(([k]) => k);
  const arrows = first.flatMap((a, one) =>
    first.flatMap((b, other) => (reach[a][b] && !first.some((c) => reach[a][c] && reach[c][b]) ? [[one, other]] : [])),
  );
  return { groups: groups.map((places) => places.map((k) => components[k])), arrows };
}

/** W_svm: the smallest logits that are equal inside components and a margin of 1 apart along strict priorities. */
function marginLogits({ components, home, strict }) {
  const size = components.length;
  // In units in which the length of W is the length of the vector of heights.
  const unit = components.map((component) => 1 / Math.sqrt(component.length));
  const entries = new Float64Array(strict.length * size);
  strict.forEach(([a, b], row) => {
    entries[row * size + a] = unit[a];
    entries[row * size + b] = -unit[b];
  });
  const { weights } = leastLengthPoint(entries, new Float64Array(strict.length).fill(1), strict.length, size);
  return home.map((own) => weights[own] * unit[own]);
}

/** Logarithms of the shares of attention of tokens [node, times]. */
function logShares(tokens, logits) {
  const raw = tokens.map(([k, times]) => logits[k] + Math.log(times));
  const top = Math.max(...raw);
  const total = Math.log(raw.reduce((sum, value) => sum + Math.exp(value - top), 0));
  return raw.map((value) => value - top - total);
}

/** W_fin: the logits inside components, of sum 0 in each, that are best where only the label's component is left. */
function finiteLogits({ nodes, home, samples, components }) {
  const size = nodes.length;
  const point = new Array(size).fill(0);
  if (components.length === size) return point;
  const kept = samples.map(({ label, tokens }) => ({ label, tokens: tokens.filter(([k]) => home[k] === home[label]) }));
  const value = (logits) =>
    kept.reduce((sum, { label, tokens }) => sum - logShares(tokens, logits)[tokens.findIndex(([k]) => k === label)], 0);
  for (let round = 0; round < 60; round++) {
    const slope = new Array(size).fill(0);
    // The sum over a component is free: a penalty on it leaves the minimiser, of sum 0, as it is.
    const curve = nodes.map((_, a) => nodes.map((_other, b) => (home[a] === home[b] ? 1 : 0)));
    for (const { label, tokens } of kept) {
      const shares = logShares(tokens, point).map(Math.exp);
      slope[label] -= 1;
      tokens.forEach(([a], one) => {
        slope[a] += shares[one];
        curve[a][a] += shares[one];
        tokens.forEach(([b], other) => (curve[a][b] -= shares[one] * shares[other]));
      });
    }
    if (euclideanLength(slope) < 1e-13 * samples.length) break;
    const step = solvedSystem(curve, slope);
    const now = value(point);
    let length = 1;
    const trial = () => point.map((entry, k) => entry - length * step[k]);
    while (length > 1e-6 && !(value(trial()) <= now + 1e-14 * (1 + now))) length /= 2;
    trial().forEach((entry, k) => (point[k] = entry));
  }
  return point;
}

/**
 * Training from zero, exact on two scales: the part inside components converges by Nesterov's steps, the part between
 * them grows along the gradient of the logarithm of its own pull, with momentum (attsvm's TwoPartDescent).
 * @returns {{growing: number[][], finite: number[][], cosine: number|null, distance: number}} logits of each graph's
 *   nodes; the cosine of the growing part with W_svm and the distance of the finite one from W_fin.
 */
export function trainText({ graphs, count }, steps) {
  const zeros = () => graphs.map(({ nodes }) => new Array(nodes.length).fill(0));
  let finite = zeros();
  let before = zeros();
  const growing = zeros();
  const pull = zeros();
  let momentum = 1;
  for (let step = 0; step < steps; step++) {
    const { slope, relative } = splitGradient(graphs, growing, finite, count);
    let uphill = 0;
    const reached = finite.map((row, g) => row.map((entry, k) => entry - slope[g][k]));
    reached.forEach((row, g) => row.forEach((entry, k) => (uphill += slope[g][k] * (entry - before[g][k]))));
    const pace = uphill > 0 ? 1 : momentum;
    momentum = (1 + Math.sqrt(1 + 4 * pace * pace)) / 2;
    const carried = uphill > 0 ? 0 : (pace - 1) / momentum;
    finite = reached.map((row, g) => row.map((entry, k) => entry + carried * (entry - before[g][k])));
    before = reached;
    relative.forEach((row, g) =>
      row.forEach((entry, k) => {
        pull[g][k] = (step / (step + 1)) * (pull[g][k] + entry);
        growing[g][k] -= 0.25 * (pull[g][k] + entry);
      }),
    );
  }
  const apart = finite.flatMap((row, g) => row.map((entry, k) => entry - graphs[g].finite[k]));
  const svm = graphs.flatMap((graph) => graph.svm);
  return { growing, finite, cosine: directionCosine(growing.flat(), svm), distance: euclideanLength(apart) };
}

/** The gradient inside components, and that between them divided by the sum of its shares, however small they are. */
function splitGradient(graphs, growing, finite, count) {
  const slope = graphs.map(({ nodes }) => new Array(nodes.length).fill(0));
  const outside = [];
  graphs.forEach(({ home, samples }, g) => {
    const logits = growing[g].map((entry, k) => entry + finite[g][k]);
    for (const { label, tokens } of samples) {
      const logs = logShares(tokens, logits);
      tokens.forEach(([k], one) => {
        if (k === label) return;
        const share = Math.exp(logs[one]) / count;
        slope[g][k] += share;
        slope[g][label] -= share;
        if (home[k] !== home[label]) outside.push([g, home[k], home[label], logs[one]]);
      });
    }
  });
  const top = outside.reduce((most, [, , , log]) => Math.max(most, log), -Infinity);
  const heights = graphs.map(({ components }) => new Array(components.length).fill(0));
  let total = 0;
  for (const [g, loser, winner, log] of outside) {
    const share = Math.exp(log - top);
    total += share;
    heights[g][loser] += share;
    heights[g][winner] -= share;
  }
  const relative = graphs.map(({ home, components }, g) =>
    home.map((own) => (total > 0 ? heights[g][own] / total / components[own].length : 0)),
  );
  graphs.forEach(({ home, components }, g) => {
    const mean = components.map(() => 0);
    home.forEach((own, k) => (mean[own] += slope[g][k] / components[own].length));
    home.forEach((own, k) => (slope[g][k] -= mean[own]));
  });
  return { slope, relative };
}

/**
 * What the layer answers to a prompt: the share of each of its words in the limit and in a trained layer.
 * @returns {{sentence: string|null, shares: {word: string, predicted: number, trained: number}[], last: string|null,
 *   seen: boolean, byGraph: boolean, decided: boolean}} `byGraph`: one component beats all other words of the prompt,
 *   directly or along a chain; otherwise W_svm decides between words that the text never compared. `decided`: those that
 *   are left are one component; of several that are level, the limit does not say how they share.
 */
export function askText(read, trained, prompt) {
  const refuse = (sentence) => ({ sentence, shares: [], last: null, seen: false, byGraph: false, decided: false });
  const asked = wordsOf(prompt);
  const unknown = asked.find((word) => !read.words.includes(word));
  if (asked.length === 0) return refuse("Ask with one word of the text or more.");
  if (unknown !== undefined) return refuse(`“${unknown.slice(0, 30)}” is no word of the text.`);
  const last = asked[asked.length - 1];
  const at = read.graphs.findIndex((graph) => read.words[graph.last] === last);
  const graph = read.graphs[at];
  const ids = countsOf(asked.map((word) => read.words.indexOf(word)));
  const logitsOf = (rows) => ids.map(([id]) => (graph === undefined ? 0 : (rows[graph.nodes.indexOf(id)] ?? 0)));
  const places = ids.map(([, times], k) => [k, times]);
  const height = logitsOf(graph?.svm);
  const alive = places.filter(([k]) => height[k] >= Math.max(...height) - TIED_LOGITS);
  const limit = logShares(alive, logitsOf(graph?.finite)).map(Math.exp);
  const reached = logitsOf(trained.growing[at]);
  const now = logShares(places, logitsOf(trained.finite[at]).map((entry, k) => entry + reached[k])).map(Math.exp);
  const shares = ids.map(([id], k) => {
    const found = alive.findIndex(([place]) => place === k);
    return { word: read.words[id], predicted: found < 0 ? 0 : limit[found], trained: now[k] };
  });
  const top = alive.map(([k]) => ids[k][0]);
  const homes = new Set(top.map((id) => graph?.home[graph.nodes.indexOf(id)]));
  return {
    sentence: null,
    shares,
    last,
    seen: graph !== undefined,
    byGraph: graph !== undefined && beatsAll(graph, top, ids),
    decided: top.length === 1 || (homes.size === 1 && !homes.has(undefined)),
  };
}

function beatsAll({ nodes, home, components, strict }, top, ids) {
  const own = ids.map(([id]) => home[nodes.indexOf(id)]);
  const first = home[nodes.indexOf(top[0])];
  if (own.includes(undefined) || top.some((id) => home[nodes.indexOf(id)] !== first)) return false;
  const links = emptyTable(components.length);
  for (const [a, b] of strict) links[a][b] = true;
  const reach = closure(links);
  return own.every((each) => each === first || reach[first][each]);
}
