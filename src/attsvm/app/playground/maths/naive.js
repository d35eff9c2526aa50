/**
 * The gradient as a first attempt computes it: softmax and its derivative in single precision, every operation rounded.
 *
 * It is here to be compared with the exact one (gradient.js), and for prompts only, as in `attsvm.experiments.naive`. Once
 * 1 - s falls below the spacing of single precision the differences that it is made of are round-off.
 */
const single = Math.fround;

/** What the loop adds to the length of a gradient before it divides by it. */
const ADDITIVE = single(1e-9);

/**
 * One step of normalized descent on p, and on the head where it is trained: parameter - step g / (|g| + 1e-9).
 * @param {Float64Array} parameters p in entries 0 and 2, the head in 8 and 9; held to single precision.
 * @returns {boolean} whether anything moved.
 */
export function naiveStep(model, parameters, stepSize, loss, headTrained) {
  const { offset, tokens, labels, inputs } = model;
  const [p0, p1, v0, v1] = [0, 2, 8, 9].map((at) => single(parameters[at]));
  const inPrompt = [0, 0];
  const inHead = [0, 0];
  const add = (sum, entry) => single(sum + single(entry));
  for (let i = 0; i < inputs; i++) {
    const [first, last] = [offset[i], offset[i + 1]];
    if (first === last) continue;
    const xs = [];
    for (let k = first; k < last; k++) xs.push([single(tokens[2 * k]), single(tokens[2 * k + 1])]);
    const logits = xs.map(([x, y]) => add(single(x * p0), y * p1));
    const top = Math.max(...logits);
    const powers = logits.map((logit) => single(Math.exp(single(logit - top))));
    const total = powers.reduce(add, 0);
    const shares = powers.map((power) => single(power / total));
    const mixed = [0, 1].map((c) => xs.reduce((sum, x, t) => add(sum, single(shares[t] * x[c])), 0));
    const values = xs.map(([x, y], t) =>
      model.explicit ? single(model.values[first + t]) : add(single(x * v0), y * v1),
    );
    const output = values.reduce((sum, value, t) => add(sum, single(shares[t] * value)), 0);
    const slope = single(single(slopeOf(loss, single(labels[i] * output)) * labels[i]) / inputs);
    const inShares = values.map((value) => single(slope * value));
    const mean = inShares.reduce((sum, entry, t) => add(sum, single(entry * shares[t])), 0);
    xs.forEach((x, t) => {
      const inLogit = single(shares[t] * single(inShares[t] - mean));
      for (const c of [0, 1]) inPrompt[c] = add(inPrompt[c], single(inLogit * x[c]));
    });
    for (const c of [0, 1]) inHead[c] = add(inHead[c], single(slope * mixed[c]));
  }
  const moved = moveBy(parameters, [0, 2], inPrompt, single(stepSize));
  return headTrained ? moveBy(parameters, [8, 9], inHead, single(stepSize)) || moved : moved;
}

/** The derivative of log(1 + exp(-m)), exp(-m) or -m, as automatic differentiation takes it. */
function slopeOf(loss, margin) {
  if (loss === 2) return -1;
  const power = single(Math.exp(-margin));
  return loss === 1 ? -power : -single(power / single(1 + power));
}

function moveBy(parameters, places, gradient, stepSize) {
  const length = single(Math.sqrt(single(single(gradient[0] * gradient[0]) + single(gradient[1] * gradient[1]))));
  places.forEach((at, c) => {
    const direction = single(single(stepSize * gradient[c]) / single(length + ADDITIVE));
    parameters[at] = single(single(parameters[at]) - direction);
  });
  return length > 0;
}
