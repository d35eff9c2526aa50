import { datasetArrays } from "./arrays.js";

const NORM_CLASSES = { frobenius: "Frobenius", nuclear: "Nuclear", spectral: "Spectral", "max-entry": "MaxEntry" };
const LOSS_CLASSES = { logistic: "Logistic", exponential: "Exponential", linear: "Linear" };

function literal(value) {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Object.is(value, -0)) return "-0.0";
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? `${value}.0` : String(value);
}

function tensorText(value) {
  return `torch.tensor(${literal(value)}, dtype=torch.float64)`;
}

function nestedText(value, indent) {
  return `torch.tensor([\n${value.map((row) => `${indent}    ${literal(row)},`).join("\n")}\n${indent}], dtype=torch.float64)`;
}

function optimizerText({ optimizer, stepSize }) {
  const size = literal(stepSize);
  if (optimizer === "gradient") return `attsvm.GradientDescent(${size})`;
  if (optimizer === "normalized") return `attsvm.NormalizedGradientDescent(${size})`;
  return `attsvm.SteepestDescent(attsvm.${optimizer === "sign" ? "MaxEntry" : "Spectral"}(), ${size})`;
}

function startText(settings, headTrained) {
  const { trained, start } = settings;
  const parts = [];
  if (trained === "p") parts.push(`"weights": ${tensorText(start.p.map((entry) => [entry]))}`);
  else if (trained === "W") parts.push(`"weights": ${tensorText(start.W)}`);
  else parts.push(`"key": ${tensorText(start.K)}`, `"query": ${tensorText(start.Q)}`);
  if (headTrained) parts.push(`"head": ${tensorText(settings.startHead)}`);
  return `{${parts.join(", ")}}`;
}

/** Python that makes the data, runs descent and solves what is on screen. */
export function snippetOf(model) {
  const { problem, settings, headTrained } = model;
  const head = headTrained ? settings.startHead : problem.head;
  const arrays = datasetArrays(problem, head);
  const lines = [
    "# What the attsvm playground shows.",
    "import torch",
    "",
    "import attsvm",
    "",
    "data = attsvm.TokenDataset(",
    `    tokens=${nestedText(arrays.tokens, "    ")},`,
    `    queries=${tensorText(arrays.queries)},${problem.kind === "prompt" ? "  # a prompt: dq = 1" : ""}`,
    `    labels=${tensorText(arrays.labels)},`,
  ];
  if (arrays.mask !== null) lines.push(`    mask=torch.tensor(${literal(arrays.mask)}),`);
  if (arrays.values !== null)
    lines.push(`    values=${nestedText(arrays.values, "    ")},  # the third coordinate is the score`);
  lines.push(
    `    head=${tensorText(arrays.head)},`,
    ")",
    "run = attsvm.fit(",
    "    data,",
    `    parameterization=attsvm.${settings.trained === "KQ" ? "KeyQuery()" : "Weights()"},`,
    `    optimizer=${optimizerText(settings)},`,
    `    loss=attsvm.attention.${LOSS_CLASSES[settings.loss]}(),`,
    `    steps=${settings.steps},`,
    `    initial=${startText(settings, headTrained)},`,
  );
  if (headTrained) lines.push("    train_head=True,");
  if (model.state.time !== null)
    lines.push(
      `    record=[0, ${model.state.time}, ${settings.steps}],  # the page stands at step ${model.state.time}`,
    );
  lines.push(")", 'print("descent selects", run.selected.tolist())', "");
  const pinned = model.state.shown !== null;
  const selection = pinned ? `torch.tensor([${model.shown.join(", ")}])` : "run.selected";
  const sides = model.prediction.rightHandSide;
  const relaxed = sides !== null && sides.some((side) => side !== 1);
  lines.push(
    relaxed
      ? `# Inputs that do not support the label margin ask for less: the relaxed problem.\nproblem = attsvm.AttentionSVM(data, ${selection}, right_hand_side=${tensorText(sides)})`
      : `problem = attsvm.AttentionSVM(data, ${selection})`,
    `solution = attsvm.solve(problem, norm=attsvm.${NORM_CLASSES[model.norm]}())`,
    "print(solution.status)",
    "if bool(solution.solved):",
    '    print("cosine", float(attsvm.direction_cosine(run.weights, solution.weights)))',
  );
  if (!relaxed) {
    lines.push(
      `    print("margin over the best", float(attsvm.margin_efficiency(run.weights, problem, norm=attsvm.${NORM_CLASSES[model.norm]}())))`,
    );
  }
  if (model.norm !== "frobenius")
    lines.push(
      "# In this norm there may be several solutions: the cosine depends on which one was found, the margin does not.",
    );
  lines.push("");
  return lines.join("\n");
}
