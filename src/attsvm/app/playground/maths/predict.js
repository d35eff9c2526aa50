/** Which direction theory expects a run to take, given the selection it makes. */
import { labelMarginOf, maxMarginOf } from "./margin.js";
import { modelOf } from "./model.js";

const NORM_BIAS = {
  frobenius: {
    label: "Frobenius",
    clause: "gradient descent tends to the Frobenius max-margin direction (proved from a suitable start)",
  },
  nuclear: { label: "nuclear", clause: "training K and Q tends to the nuclear max-margin direction (conjectured)" },
  spectral: {
    label: "spectral",
    clause: "spectral descent should tend to the max-margin direction of the spectral norm (conjectured)",
  },
  "max-entry": {
    label: "max-entry",
    clause: "sign descent should tend to the max-margin direction of the largest entry (conjectured)",
  },
};

/**
 * The norm that belongs to what is trained and how, or null where nothing is known.
 * @param {boolean} prompt whether a vector p is trained.
 */
export function normOfTraining(prompt, settings) {
  const optimizer = (settings && settings.optimizer) || "gradient";
  if (!prompt && settings && settings.trained === "KQ") {
    return optimizer === "gradient" || optimizer === "normalized" ? "nuclear" : null;
  }
  if (optimizer === "sign") return "max-entry";
  if (optimizer === "spectral" && !prompt) return "spectral";
  return "frobenius";
}

/**
 * The predicted direction of W (or p) for a run that ends on `selected`.
 *
 * With the head trained too: v tends to the label margin solution v_mm with support inputs S, and attention to the SVM
 * with right-hand side 1 for inputs in S and b_i = max(0, 1 - rho N(W) slack_i / |v_mm|) outside, rho the ratio
 * |v| / N(W) at which both grow: infinite in the theorem (b_i = 0), 1 for normalized descent on (v, p) and (v, W), 0 on
 * (v, K, Q), whose product grows faster. All b_i = 1 is called tight, the others relaxed.
 * @returns {{label: string, norm: string|null, weights: number[]|null, head: number[]|null,
 *            rightHandSide: number[]|null, solution: Object|null, sentence: string}} weights null where nothing is
 *            predicted; label then is "none".
 */
export function predict(problem, settings, selected) {
  const model = modelOf(problem);
  const norm = normOfTraining(model.prompt, settings);
  const result = { label: "none", norm, weights: null, head: null, rightHandSide: null, solution: null, sentence: "" };
  if (norm === null) {
    result.sentence = `No limit is proved or conjectured for ${settings.optimizer} descent on K and Q.`;
    return result;
  }
  const joint = Boolean(settings && settings.trainHead) && !model.explicit;
  if (joint) return jointPrediction(model, settings, selected, norm, result);
  const solution = maxMarginOf(model, selected, { norm });
  result.solution = solution;
  if (solution.status !== "solved") {
    result.sentence = solution.sentence;
    return result;
  }
  result.label = NORM_BIAS[norm].label;
  result.weights = solution.weights;
  result.sentence = `If this selection stays, ${NORM_BIAS[norm].clause}.`;
  return result;
}

function jointPrediction(model, settings, selected, norm, result) {
  if (norm === "max-entry") {
    result.sentence = "No limit is known for sign descent on attention and head together.";
    return result;
  }
  const label = labelMarginOf(model, selected);
  if (label.status !== "solved") {
    result.sentence = label.sentence;
    return result;
  }
  const length = Math.hypot(...label.head);
  const ratio = growthRatio(settings, norm);
  const slack = label.margins.map((margin, i) => (label.supportInputs.includes(i) ? 0 : Math.max(0, margin - 1)));
  const { solution, sides } = balancedSides(model, selected, norm, slack.map((entry) => pullOf(ratio, entry, length)));
  result.head = label.head;
  result.solution = solution;
  result.rightHandSide = sides;
  if (solution.status !== "solved") {
    result.sentence = solution.sentence;
    return result;
  }
  const tight = slack.every((entry) => entry === 0);
  result.label = tight ? NORM_BIAS[norm].label : "relaxed";
  result.weights = solution.weights;
  const free = slack.flatMap((entry, i) => (entry > 0 ? [i] : []));
  result.sentence = tight
    ? "Every selected token supports the label margin: attention tends to the SVM of the selection, v to v_mm."
    : `The label margin does not rest on input ${free.join(", ")}, so attention need not separate as far there: ` +
      "the relaxed SVM.";
  return result;
}

function growthRatio(settings, norm) {
  if (settings.optimizer === "gradient") return Infinity;
  return norm === "nuclear" ? 0 : 1;
}

function pullOf(ratio, slack, length) {
  if (!(slack > 0) || ratio === 0) return 0;
  return ratio === Infinity ? Infinity : (ratio * slack) / length;
}

/** The problem with b_i = max(0, 1 - pull_i N(W)) at its own solution's N(W): both fall as the other grows. */
function balancedSides(model, selected, norm, pulls) {
  const posed = (value) => {
    const sides = pulls.map((pull) => (pull === Infinity ? 0 : Math.max(0, 1 - pull * value)));
    return { sides, solution: maxMarginOf(model, selected, { norm, rightHandSide: sides }) };
  };
  const hardest = posed(0);
  if (hardest.solution.status !== "solved" || !pulls.some((pull) => pull > 0 && pull < Infinity)) return hardest;
  let low = 0;
  let high = hardest.solution.norm;
  for (let round = 0; round < 60 && high - low > 1e-12 * high; round++) {
    const middle = (low + high) / 2;
    if (middle < posed(middle).solution.norm) low = middle;
    else high = middle;
  }
  return posed(high);
}
