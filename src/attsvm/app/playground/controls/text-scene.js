import { capital, nearOne, percent, scientific } from "../format.js";
import { TEXT_LIMITS, askText, readText, trainText } from "../maths/next-token.js";
import { node, setAttributes, setText, shape, syncChildren } from "../view/dom.js";
import { drawPriorities } from "../view/priority-graph.js";
import { numberField } from "./fields.js";

const FIRST_STEPS = 200;
const INTRODUCTION =
  "A layer reads every window of words and learns to point at the word that comes next. What it ends with can be read off the text before training: which words beat which.";

/** A share in the limit may be all or nothing, or not decided; a trained one never is. */
function limitShare(share, decided) {
  return share === 0 ? "0 %" : !decided ? "open" : share === 1 ? "100 %" : percent(share);
}

/** What the answer means, in one sentence. */
function answerText({ sentence, shares, last, seen, byGraph, decided }) {
  if (sentence !== null) return sentence;
  if (!seen) return `No window of the text ends in “${last}”: nothing is learnt after it, and attention stays spread.`;
  const kept = shares.filter(({ predicted }) => predicted > 0).sort((a, b) => b.predicted - a.predicted);
  const named = kept.map(({ word, predicted }) => `“${word}”${kept.length > 1 && decided ? ` (${percent(predicted)})` : ""}`);
  const list = named.length < 2 ? named[0] : `${named.slice(0, -1).join(", ")} or ${named[named.length - 1]}`;
  const others = kept.length < shares.length;
  const reason = !decided
    ? "the text does not compare them, and how they share hangs on the start"
    : !byGraph
    ? "the text does not compare all these words, so the widest margin decides"
    : kept.length === 1
      ? others
        ? "after that word it beats every other one here"
        : "it is the only word here"
      : `they beat each other in turn${others ? ", and every other word here" : ""}`;
  return `After “${last}” training ends with ${list}: ${reason}.`;
}

/** Python that computes the same. */
function textSnippet({ text, window, ask }, steps) {
  return [
    "# What the attsvm playground shows.",
    "import torch",
    "from attsvm import next_token",
    "",
    `data = next_token.from_text(${JSON.stringify(text)}, window=${window})`,
    "limit = next_token.predict_limit(data)",
    "zero = torch.zeros(data.d, data.d, dtype=torch.float64)",
    `run = next_token.train(limit, ${steps}, initial={"finite": zero, "growing": zero})`,
    'print(limit.graph, limit, next_token.verify(limit, run), sep="\\n\\n")',
    "",
    `prompt = ${JSON.stringify(ask)}`,
    "predicted, trained = limit.answer(prompt), next_token.respond(data, run.weights, prompt)",
    "print(predicted, trained)",
    "",
  ].join("\n");
}

/** The scene of a text: its priority graph, predicted and trained attention, and answers to a prompt. */
export function createTextScene({ onChange }) {
  let shown = null;
  let key = "";
  let read = null;
  let trained = null;
  let steps = FIRST_STEPS;
  let chosen = null;
  let width = 0;

  const area = node("textarea", { id: "own-text", rows: 3, maxlength: 4000, spellcheck: "false", oninput: () => change({ text: area.value }) });
  const window = numberField({
    label: "words of a window",
    low: 1,
    high: TEXT_LIMITS.window,
    step: 1,
    whole: true,
    onValue: (value) => change({ window: value }),
  });
  const samples = node("p", { class: "hint", role: "status" });
  const last = node("select", { "aria-label": "last word", onchange: () => show(Number(last.value)) });
  const graph = shape("svg", { class: "priorities", role: "img" });
  const order = node("div", { class: "order" }, node("h2", {}, "Who beats whom after ", last), graph, node("p", { class: "hint" }, "Words in a coloured box beat each other in turn and share the attention; those in a plain box are not compared with each other. An arrow: beats always."));
  const prompt = node("input", { id: "own-prompt", type: "text", maxlength: 400, autocomplete: "off", spellcheck: "false", oninput: () => change({ ask: prompt.value }) });
  const answer = node("p", { class: "answer", role: "status" });
  const rows = node("tbody", {});
  const heads = ["word", "predicted", "trained"].map((name) => node("th", { scope: "col" }, name));
  const bars = node("table", { class: "shares" }, node("caption", { class: "unseen" }, "attention on each word of the prompt"), node("thead", {}, node("tr", {}, heads)), rows);
  const slider = node("input", { id: "own-steps", type: "range", min: 0, max: TEXT_LIMITS.steps, step: 10, oninput: () => walk(Number(slider.value)) });
  const count = node("span", { class: "text-count" });
  const measured = node("p", { class: "hint" });
  const walked = node("div", { class: "text-walk" }, node("label", { for: "own-steps" }, "Training"), slider, count);
  const element = node(
    "main",
    { class: "text-scene", hidden: true },
    node(
      "section",
      { "aria-label": "text and priorities" },
      node("p", {}, INTRODUCTION, " ", node("a", { href: "https://arxiv.org/abs/2403.08081", target: "_blank", rel: "noopener" }, "Paper")),
      node("div", { class: "text-head" }, node("label", { for: "own-text" }, "Text"), node("label", { class: "check" }, "window", window.input, "words")),
      area,
      samples,
      order,
    ),
    node("section", { "aria-label": "ask the layer" }, node("label", { for: "own-prompt" }, "Ask for the word after"), prompt, answer, bars, walked, measured),
  );

  function change(part) {
    onChange({ ...shown, ...part });
  }

  function walk(to) {
    steps = to;
    trained = null;
    compute();
  }

  function show(to) {
    chosen = to;
    draw();
  }

  /** What changed is computed anew: the text, then training, then the answer. */
  function compute() {
    const now = JSON.stringify([shown.text, shown.window]);
    if (now !== key) {
      key = now;
      read = readText(shown.text, shown.window);
      trained = null;
      chosen = null;
    }
    trained ??= trainText(read, steps);
    const good = read.sentence === null;
    setText(samples, good ? `${read.count} samples; ${read.leftOut} more are left out: their next word is not in the window.` : read.sentence);
    for (const part of [order, bars, walked, measured]) setAttributes(part, { hidden: !good });
    const asked = good ? askText(read, trained, shown.ask) : null;
    setText(answer, asked === null ? "" : answerText(asked));
    if (!good) return;
    if (asked.last !== null && asked.seen) chosen ??= read.words.indexOf(asked.last);
    tell(asked);
    draw();
  }

  function tell({ shares, decided }) {
    syncChildren(rows, shares.map((share, k) => ({ ...share, k })), ({ k }) => String(k), createShare, (row, { word, predicted, trained: now }) => {
      const [name, ...cells] = row.children;
      setText(name, word);
      [predicted, now].forEach((share, k) => {
        cells[k].firstChild.firstChild.style.setProperty("transform", `scaleX(${(k > 0 || decided ? share : 0).toFixed(4)})`);
        setText(cells[k].lastChild, k === 0 ? limitShare(share, decided) : percent(share));
      });
    });
    slider.value = String(steps);
    setAttributes(slider, { "aria-valuetext": `${steps} steps` });
    slider.style.setProperty("--done", `${(100 * steps) / TEXT_LIMITS.steps}%`);
    setText(count, `step ${steps}`);
    const parts = [];
    if (trained.cosine !== null) parts.push(`direction between boxes: cosine ${nearOne(trained.cosine)} to the predicted one`);
    if (read.graphs.some(({ finite }) => finite.some((entry) => entry !== 0)))
      parts.push(`shares inside boxes: ${trained.distance < 1e-12 ? "as predicted, to rounding" : `${scientific(trained.distance)} away`}`);
    setText(measured, `${capital(parts.join("; "))}${parts.length > 0 ? "." : ""}`);
  }

  function draw() {
    if (read === null || read.sentence !== null) return;
    const found = read.graphs.find((each) => each.last === chosen) ?? read.graphs[0];
    syncChildren(last, read.graphs, (each) => String(each.last), () => node("option", {}), (option, each) => {
      setAttributes(option, { value: each.last });
      setText(option, `“${read.words[each.last]}” (${each.samples.length})`);
    });
    last.value = String(found.last);
    width = Math.floor(order.clientWidth);
    if (width > 0) drawPriorities(graph, found, read.words, width);
  }

  const observer = new ResizeObserver(() => {
    if (Math.floor(order.clientWidth) !== width) draw();
  });
  observer.observe(order);

  return {
    element,
    update({ display }) {
      setAttributes(element, { hidden: display.text === null });
      if (display.text === null || display.text === shown) return;
      if (shown !== null && display.text.ask !== shown.ask) chosen = null;
      shown = display.text;
      if (area.value !== shown.text) area.value = shown.text;
      if (prompt.value !== shown.ask) prompt.value = shown.ask;
      window.show(shown.window);
      compute();
    },
    snippet: () => textSnippet(shown, steps),
    stop: () => observer.disconnect(),
  };
}

function createShare() {
  const cell = () => node("td", {}, node("span", { class: "bar-track" }, node("span", { class: "bar-fill" })), node("span", { class: "bar-value" }));
  return node("tr", {}, node("th", { scope: "row" }), cell(), cell());
}
