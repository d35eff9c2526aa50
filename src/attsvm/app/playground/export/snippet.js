import { predict } from "../maths/predict.js";
import { hasTypedScores } from "../state/schema.js";
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

function dataLines(name, problem, head) {
  const arrays = datasetArrays(problem, head);
  const lines = [
    `${name} = attsvm.TokenDataset(`,
    `    tokens=${nestedText(arrays.tokens, "    ")},`,
    `    queries=${tensorText(arrays.queries)},${problem.kind === "prompt" ? "  # a prompt: dq = 1" : ""}`,
    `    labels=${tensorText(arrays.labels)},`,
  ];
  if (arrays.mask !== null) lines.push(`    mask=torch.tensor(${literal(arrays.mask)}),`);
  if (arrays.values !== null)
    lines.push(`    values=${nestedText(arrays.values, "    ")},  # the third coordinate is the score`);
  return [...lines, `    head=${tensorText(arrays.head)},`, ")"];
}

/** The loop of the naive gradient, which is no optimizer of `fit`. */
function naiveLines(name, data, problem, settings, headTrained) {
  const lines = [
    `${name}_prompts, _ = naive_descent(`,
    `    ${data},`,
    `    ${tensorText(settings.start.p)},`,
    `    steps=${settings.steps},`,
    `    record=[${settings.steps}],`,
    `    loss=attsvm.attention.${LOSS_CLASSES[settings.loss]}(),`,
    `    step_size=${literal(settings.stepSize)},`,
  ];
  if (headTrained) lines.push(`    initial_head=${tensorText(settings.startHead)},`);
  lines.push(
    ")",
    `${name} = SimpleNamespace(weights=${name}_prompts[-1][:, None])`,
    `${name}.selected = (${data}.tokens @ ${name}.weights)[..., 0].argmax(-1)`,
  );
  if (new Set(problem.inputs.map(({ tokens }) => tokens.length)).size > 1)
    lines.push("# The naive loop reads padding as tokens: with inputs of different lengths it is not the page's run.");
  return lines;
}

function fitLines(name, data, problem, settings, headTrained, time) {
  if (settings.optimizer === "naive") return naiveLines(name, data, problem, settings, headTrained);
  const lines = [
    `${name} = attsvm.fit(`,
    `    ${data},`,
    `    parameterization=attsvm.${settings.trained === "KQ" ? "KeyQuery()" : "Weights()"},`,
    `    optimizer=${optimizerText(settings)},`,
    `    loss=attsvm.attention.${LOSS_CLASSES[settings.loss]}(),`,
    `    steps=${settings.steps},`,
    `    initial=${startText(settings, headTrained)},`,
  ];
  if (headTrained) lines.push("    train_head=True,");
  if (time !== null && time <= settings.steps)
    lines.push(`    record=[0, ${time}, ${settings.steps}],  # the page stands at step ${time}`);
  return [...lines, ")"];
}

function problemText(data, selection, sides) {
  const relaxed = sides !== null && sides.some((side) => side !== 1);
  const asked = relaxed ? `, right_hand_side=${tensorText(sides)}` : "";
  return `attsvm.AttentionSVM(${data}, ${selection}${asked})`;
}

/** Every other run on the screen, by its name there: data, run, problem and norm in one dictionary. */
function otherRuns(model) {
  const lines = ["", "# The other runs on the screen, by their names there.", "others = {}"];
  const names = new Set();
  model.companions.forEach((companion, k) => {
    let name = companion.name;
    for (let again = 2; names.has(name); again += 1) name = `${companion.name} (${again})`;
    names.add(name);
    const key = JSON.stringify(name);
    const headTrained = companion.settings.trainHead && !hasTypedScores(companion.problem);
    const own = companion.held || headTrained !== model.headTrained;
    const data = own ? `data_${k}` : "data";
    const head = headTrained ? companion.settings.startHead : companion.problem.head;
    if (own) lines.push(...dataLines(data, companion.problem, head));
    lines.push(...fitLines(`run_${k}`, data, companion.problem, companion.settings, headTrained, model.state.time));
    const sides = predict(companion.problem, companion.settings, companion.run?.selected ?? []).rightHandSide;
    const norm = `attsvm.${NORM_CLASSES[companion.norm]}()`;
    lines.push(`others[${key}] = (run_${k}, ${problemText(data, `run_${k}.selected`, sides)}, ${norm})`);
  });
  lines.push(
    "for name, (other, its_problem, its_norm) in others.items():",
    '    print(f"{name}: descent selects", other.selected.tolist())',
    "    its_solution = attsvm.solve(its_problem, norm=its_norm)",
    "    if bool(its_solution.solved):",
    '        print("    cosine", float(attsvm.direction_cosine(other.weights, its_solution.weights)))',
  );
  return lines;
}

/** Python that makes the data, runs every descent on the screen and solves what is shown. */
export function snippetOf(model) {
  const { problem, settings, headTrained } = model;
  const head = headTrained ? settings.startHead : problem.head;
  const naive = [settings, ...model.companions.map((each) => each.settings)].some((each) => each.optimizer === "naive");
  const lines = [
    "# What the attsvm playground shows. Inputs and tokens count from 0, on the page and here.",
    "import torch",
    "",
    "import attsvm",
    ...(naive ? ["from types import SimpleNamespace", "from attsvm.experiments.naive import naive_descent"] : []),
    "",
    ...dataLines("data", problem, head),
    ...fitLines("run", "data", problem, settings, headTrained, model.state.time),
    'print("descent selects", run.selected.tolist())',
    "",
  ];
  const pinned = model.state.shown !== null;
  const selection = pinned ? `torch.tensor([${model.shown.join(", ")}])` : "run.selected";
  const sides = model.prediction.rightHandSide;
  const norm = `attsvm.${NORM_CLASSES[model.norm]}()`;
  if (model.relaxed) lines.push("# Inputs that do not support the label margin ask for less: the relaxed problem.");
  lines.push(
    `problem = ${problemText("data", selection, sides)}`,
    `solution = attsvm.solve(problem, norm=${norm})`,
    "print(solution.status)",
    "if bool(solution.solved):",
    '    print("cosine", float(attsvm.direction_cosine(run.weights, solution.weights)))',
  );
  if (!model.relaxed)
    lines.push(
      `    print("margin over the best", float(attsvm.margin_efficiency(run.weights, problem, norm=${norm})))`,
    );
  if (model.norm !== "frobenius")
    lines.push(
      "# In this norm there may be several solutions: the cosine depends on which one was found, the margin does not.",
    );
  if (model.companions.length > 0) lines.push(...otherRuns(model));
  lines.push("");
  return lines.join("\n");
}
