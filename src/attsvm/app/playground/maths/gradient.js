/**
 * Softmax attention and a gradient whose direction is right at any norm of the weights.
 *
 * Everything is measured from the winner o of its input: gap_it = u_io - u_it, probabilities as logarithms, and the
 * largest exponent (probability times slope of the loss) taken out before exponentiating. The gradient is then a
 * mantissa and a log-scale: exp(scale) times the numbers in `inWeights`, exp(headScale) times those in `inHead`.
 */
import { logSigmoid } from "./numbers.js";

/** Losses by number, for the loops. */
export const LOSS_ORDER = ["logistic", "exponential", "linear"];

/** Room for one forward and one backward pass. */
export function passOf(model) {
  return {
    weights: new Float64Array(4),
    head: Float64Array.from(model.head),
    shifted: new Float64Array(model.total),
    powers: new Float64Array(model.total),
    pulls: new Float64Array(model.total),
    worth: Float64Array.from(model.scores),
    logNormalizer: new Float64Array(model.inputs),
    winner: new Int32Array(model.inputs),
    margin: new Float64Array(model.inputs),
    mixed: new Float64Array(2 * model.inputs),
    logSlope: new Float64Array(model.inputs),
    inWeights: new Float64Array(4),
    inHead: new Float64Array(2),
    scale: 0,
    headScale: 0,
  };
}

/** loss(margin), held below infinity. */
export function lossValue(loss, margin) {
  if (loss === 0) return -logSigmoid(margin);
  if (loss === 1) return Math.min(Number.MAX_VALUE, Math.exp(-margin));
  return -margin;
}

/** log|loss'(margin)|, exact where the slope itself underflows. */
export function logLossSlope(loss, margin) {
  if (loss === 0) return logSigmoid(-margin);
  if (loss === 1) return -margin;
  return 0;
}

/** Fill `shifted` (logits minus the winner's), `powers` (their exponentials), normalizers, winners and margins. */
export function attendForward(model, pass, headTrained) {
  const { offset, tokens, queries, labels } = model;
  const { weights, shifted, powers, worth, mixed } = pass;
  const v0 = pass.head[0];
  const v1 = pass.head[1];
  for (let i = 0; i < model.inputs; i++) {
    const first = offset[i];
    const last = offset[i + 1];
    if (first === last) continue;
    const z0 = queries[2 * i];
    const z1 = queries[2 * i + 1];
    const d0 = z0 * weights[0] + z1 * weights[1];
    const d1 = z0 * weights[2] + z1 * weights[3];
    let top = -Infinity;
    let winner = first;
    for (let k = first; k < last; k++) {
      const logit = tokens[2 * k] * d0 + tokens[2 * k + 1] * d1;
      shifted[k] = logit;
      if (logit > top) {
        top = logit;
        winner = k;
      }
    }
    let others = 0;
    for (let k = first; k < last; k++) {
      const away = shifted[k] - top;
      shifted[k] = away;
      const power = k === winner ? 1 : Math.exp(away);
      powers[k] = power;
      if (k !== winner) others += power;
    }
    pass.winner[i] = winner;
    pass.logNormalizer[i] = Math.log1p(others);
    const share = 1 / (1 + others);
    if (headTrained) {
      let m0 = 0;
      let m1 = 0;
      const y0 = labels[i] * v0;
      const y1 = labels[i] * v1;
      for (let k = first; k < last; k++) {
        const s = powers[k] * share;
        m0 += s * tokens[2 * k];
        m1 += s * tokens[2 * k + 1];
        worth[k] = tokens[2 * k] * y0 + tokens[2 * k + 1] * y1;
      }
      mixed[2 * i] = m0;
      mixed[2 * i + 1] = m1;
      pass.margin[i] = labels[i] * (m0 * v0 + m1 * v1);
    } else {
      let margin = 0;
      for (let k = first; k < last; k++) margin += powers[k] * share * worth[k];
      pass.margin[i] = margin;
    }
  }
}

/** Fill the gradient of (1/n) sum_i loss(Y_i f_i) in W, and in the head where it is trained, after a forward pass. */
export function riskBackward(model, pass, loss, headTrained) {
  const { offset, tokens, queries, labels, inputs } = model;
  const { shifted, powers, pulls, worth, logSlope, logNormalizer, inWeights, inHead, mixed } = pass;
  let scale = -Infinity;
  let headScale = -Infinity;
  for (let i = 0; i < inputs; i++) {
    if (offset[i] === offset[i + 1]) continue;
    const slope = logLossSlope(loss, pass.margin[i]);
    logSlope[i] = slope;
    if (slope > headScale) headScale = slope;
    const own = worth[pass.winner[i]];
    let top = -Infinity;
    for (let k = offset[i]; k < offset[i + 1]; k++) {
      // Tokens tied with the winner have no gap of their own, so they must not set the scale.
      if (worth[k] !== own && k !== pass.winner[i] && shifted[k] > top) top = shifted[k];
    }
    const exponent = top - logNormalizer[i] + slope;
    if (exponent > scale) scale = exponent;
  }
  if (!Number.isFinite(scale)) scale = 0;
  if (!Number.isFinite(headScale)) headScale = 0;
  let g0 = 0;
  let g1 = 0;
  let g2 = 0;
  let g3 = 0;
  for (let i = 0; i < inputs; i++) {
    const first = offset[i];
    const last = offset[i + 1];
    if (first === last) continue;
    const winner = pass.winner[i];
    const own = worth[winner];
    const rest = logSlope[i] - logNormalizer[i] - scale;
    const factor = rest < 700 ? Math.exp(rest) : Infinity;
    let sum = 0;
    for (let k = first; k < last; k++) {
      const gap = own - worth[k];
      if (k === winner || gap === 0) {
        pulls[k] = 0;
        continue;
      }
      // One exponential a token where it fits the range of floating point, a second one where it does not.
      const near = shifted[k] > -700 && factor < 1e300;
      const pull = (near ? powers[k] * factor : Math.exp(shifted[k] + rest)) * gap;
      pulls[k] = pull;
      sum += pull;
    }
    const share = Math.exp(-logNormalizer[i]);
    let total = 0;
    let r0 = 0;
    let r1 = 0;
    for (let k = first; k < last; k++) {
      if (k === winner) continue;
      const entry = (pulls[k] - powers[k] * share * sum) / inputs;
      total += entry;
      r0 += entry * tokens[2 * k];
      r1 += entry * tokens[2 * k + 1];
    }
    r0 -= total * tokens[2 * winner];
    r1 -= total * tokens[2 * winner + 1];
    const z0 = queries[2 * i];
    const z1 = queries[2 * i + 1];
    g0 += r0 * z0;
    g1 += r0 * z1;
    g2 += r1 * z0;
    g3 += r1 * z1;
  }
  inWeights[0] = g0;
  inWeights[1] = g1;
  inWeights[2] = g2;
  inWeights[3] = g3;
  pass.scale = scale;
  if (headTrained) {
    let h0 = 0;
    let h1 = 0;
    for (let i = 0; i < inputs; i++) {
      if (offset[i] === offset[i + 1]) continue;
      const weight = (-labels[i] * Math.exp(logSlope[i] - headScale)) / inputs;
      h0 += weight * mixed[2 * i];
      h1 += weight * mixed[2 * i + 1];
    }
    inHead[0] = h0;
    inHead[1] = h1;
    pass.headScale = headScale;
  }
}

/** log s_it of token k of input i after a forward pass. */
export function logProbability(pass, i, k) {
  return pass.shifted[k] - pass.logNormalizer[i];
}
