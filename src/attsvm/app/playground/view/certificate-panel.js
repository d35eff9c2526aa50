import { node, setText } from "./dom.js";
import { grouped, nearOne, percent, scientific, significant } from "../format.js";

const ROWS = [
  ["status", "status"],
  ["value", "norm of the solution"],
  ["gap", "relative duality gap"],
  ["margin", "smallest margin"],
  ["weights", "solution"],
  ["local", "locally optimal"],
  ["solver", "solver"],
];
const NORM_WORDS = { frobenius: "Frobenius", nuclear: "nuclear", spectral: "spectral", "max-entry": "largest entry" };

const RUN_ROWS = [
  ["selected", "selects"],
  ["size", "norm of the weights"],
  ["margins", "margin of each input"],
  ["margin", "smallest margin over norm"],
  ["lack", "short of the best margin by"],
  ["cosine", "cosine to the solution"],
  ["probability", "least attention selected"],
];

/** A table with a column for the page and, where a host can certify, one for Python; `fill` writes one of them. */
function createColumns(rows, canCertify) {
  const cells = new Map();
  const body = rows.map(([key, words]) => {
    const page = node("td", {});
    const python = canCertify ? node("td", {}) : null;
    cells.set(key, { page, python });
    return node("tr", {}, node("th", { scope: "row" }, words), page, python);
  });
  const title = node("th", { scope: "col" });
  const header = node(
    "tr",
    {},
    title,
    node("th", { scope: "col" }, "this page"),
    canCertify ? node("th", { scope: "col" }, "Python") : null,
  );
  return {
    element: node("table", {}, node("thead", {}, header), node("tbody", {}, body)),
    title,
    fill(column, texts) {
      for (const [key] of rows) setText(cells.get(key)[column], texts[key] ?? "–");
    },
  };
}

/** The page's own solution and its gap, and what is measured on the run; beside them, where a host can certify, Python's. */
export function createCertificatePanel({ canCertify }) {
  const solution = createColumns(ROWS, canCertify);
  const run = createColumns(RUN_ROWS, canCertify);
  const sentence = node("p", { class: "hint" });
  const agreement = node("p", { class: "agreement" });
  const element = node(
    "div",
    { class: "certificate" },
    solution.element,
    agreement,
    sentence,
    run.element,
    node("p", { class: "hint" }, "The run is measured, not proved: it comes to the solution only in the limit."),
  );

  function update({ model, certificate }) {
    setText(solution.title, "the solution");
    setText(run.title, `the run at step ${grouped(model.run.steps[model.index])}`);
    solution.fill("page", pageColumn(model));
    run.fill("page", runColumn(model.measured));
    if (canCertify) {
      solution.fill("python", pythonColumn(model, certificate));
      const known = !certificate.waiting && certificate.measured === model.run.weights[model.index];
      run.fill("python", known && certificate.answer?.run ? runColumn(certificate.answer.run) : {});
    }
    setText(agreement, canCertify ? agreementText(model, certificate) : "");
    const closing = canCertify ? "" : " Start attsvm play to see Python's certified solution beside it.";
    const tight = model.relaxed ? ", every input asked for margin 1" : "";
    setText(sentence, `${NORM_WORDS[model.norm]} norm${tight}. ${model.certified.sentence}${closing}`);
  }

  return { element, update };
}

function weightsText(weights) {
  if (!weights || !weights.every(Number.isFinite)) return "–";
  const round = 1e-12 * Math.max(...weights.map(Math.abs));
  const [a, b, ...rest] = weights.map((entry) => significant(Math.abs(entry) <= round ? 0 : entry, 4));
  return rest.length === 0 ? `(${a}, ${b})` : `(${a}, ${b}; ${rest.join(", ")})`;
}

/** With the head trained there are no fixed scores to be optimal by. */
function localText(model, answer) {
  if (model.headTrained) return "head is trained";
  return answer ? "yes" : "no";
}

/** Measurements of a run in words, the page's or Python's. */
function runColumn({ selected, margins, size, margin, efficiency, cosine, probability }) {
  const number = (value, digits = 4) =>
    value === null || value === undefined || !Number.isFinite(value) ? "–" : significant(value, digits);
  const lack = efficiency === null || efficiency === undefined ? null : Math.max(0, 1 - efficiency);
  return {
    selected: selected.join(" · "),
    size: number(size),
    margins: margins.map((each) => number(each)).join(" · "),
    margin: number(margin),
    lack: lack === null ? "–" : lack < 1e-12 ? "0" : scientific(lack),
    cosine: cosine === null || cosine === undefined ? "–" : nearOne(cosine),
    probability: probability === undefined ? "–" : percent(probability),
  };
}

function pageColumn(model) {
  const solution = model.certified;
  const solved = solution.status === "solved";
  const margins = solved ? solution.margins.flatMap((row, i) => row.filter((_, t) => t !== model.shown[i])) : [];
  return {
    status: solution.status,
    value: solved ? significant(solution.norm, 6) : "–",
    gap: solved ? scientific(Math.abs(solution.gap)) : "–",
    margin: margins.length > 0 ? significant(Math.min(...margins), 6) : "–",
    weights: weightsText(solution.weights),
    local: solution.status === "not found" ? "not known" : localText(model, model.shownLocal?.answer),
    solver: "exact, in the plane",
  };
}

function pythonColumn(model, certificate) {
  if (certificate.answer === null) return { status: certificate.error ?? (certificate.waiting ? "asking …" : "–") };
  const { answer } = certificate;
  return {
    status: `${answer.status.replaceAll("_", " ")}${certificate.waiting ? " (before)" : ""}`,
    value: answer.value === null || answer.value === undefined ? "–" : significant(answer.value, 6),
    gap: answer.relative_gap === null ? "–" : scientific(Math.abs(answer.relative_gap)),
    margin: answer.min_margin === null ? "–" : significant(answer.min_margin, 6),
    weights: weightsText(answer.weights),
    local: localText(model, answer.locally_optimal),
    solver: (answer.solver ?? "–").replace(/([a-z])([A-Z])/g, "$1 $2"),
  };
}

function agreementText(model, certificate) {
  if (certificate.waiting || certificate.answer === null) return "";
  const own = model.certified.weights;
  const theirs = certificate.answer.weights;
  if (!own || !theirs || own.length !== theirs.length) return "";
  const away = Math.max(...own.map((entry, k) => Math.abs(entry - theirs[k])));
  const { value } = certificate.answer;
  if (away > 1e-6 && model.norm !== "frobenius" && Math.abs(value - model.certified.norm) <= 1e-6 * value) {
    return "Both have the same norm; in this norm there may be several solutions.";
  }
  return `Both solutions agree to ${scientific(away)}.`;
}
