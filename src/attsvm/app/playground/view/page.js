import { node, setAttributes } from "./dom.js";
import { createHoverName } from "./hover-name.js";

function panel(title, key, content, open = true) {
  return node("details", { class: `panel ${key}`, open }, node("summary", {}, node("h2", {}, title)), content);
}

const PAPERS = [
  ["Max-margin token selection", "https://arxiv.org/abs/2306.13596"],
  ["Transformers as SVMs", "https://arxiv.org/abs/2308.16898"],
];

/** Where to read on: the idea and the documentation, where the page knows its place, and the papers. */
function links(docs) {
  const own = docs
    ? [
        ["The idea in ten minutes", new URL("idea.html", docs).href],
        ["Documentation", new URL("index.html", docs).href],
      ]
    : [];
  const link = ([words, href]) => node("a", { href, target: "_blank", rel: "noopener" }, words);
  return node(
    "nav",
    { class: "links", "aria-label": "read on" },
    own.map(link),
    node("span", {}, "Papers: ", link(PAPERS[0]), ", ", link(PAPERS[1])),
  );
}

/** The arrangement of all parts; style.css places them by the width of the page's own element. */
export function createPage(parts, { narrow, docs }) {
  const stage = node("div", { class: "stage" });
  const hoverName = createHoverName(stage, parts.plot.element);
  const key = node("div", { class: "key" }, parts.legend.element, parts.layers.element);
  stage.append(parts.plot.element, key, hoverName.element);
  const advice = node("span", {});
  const paper = node("span", { class: "paper" });
  const line = node("p", { class: "explanation" });
  const live = node("div", { class: "unseen", role: "status", "aria-live": "polite" });
  const toast = node("div", { class: "toast", role: "status", hidden: true });
  const back = node("button", { type: "button" }, "Back to the scene");
  // Unseen it keeps its room: nothing moves under the pointer when the first drag makes it appear.
  const edited = node("span", { class: "edited" }, "Changed since: the advice is about the scene as it was. ", back);
  const advised = node("p", { class: "advice" }, advice, " ", paper, " ", edited);
  const readOn = links(docs);
  const main = node(
    "main",
    { class: "main" },
    advised,
    stage,
    parts.inspector.element,
    parts.timeline.element,
    line,
    readOn,
  );
  const panels = {
    going: panel("Where descent is going", "going", parts.readout.element),
    attention: panel("Attention", "attention", parts.bars.element),
    along: panel("Along the run", "along", parts.curves.element, !narrow),
    fresh: panel("Generalization", "fresh-inputs", parts.fresh.element, !narrow),
    local: panel("Locally optimal selections", "local", parts.optima.element),
    certified: panel("Certificate", "certified", parts.certificate.element, !narrow),
    train: panel("Training", "train", parts.training.element),
    coordinates: panel("Coordinates", "coordinates", parts.table.element, !narrow),
  };
  const { train, coordinates, ...found } = panels;
  const results = node("aside", { class: "side results", "aria-label": "results" }, Object.values(found));
  const setup = node("aside", { class: "side setup", "aria-label": "problem and training" }, train, coordinates);
  const dialogs = parts.dialogs;
  const element = node(
    "div",
    { class: "playground" },
    parts.toolbar.element,
    parts.story.element,
    main,
    results,
    setup,
    parts.textScene.element,
    live,
    toast,
    dialogs,
  );
  const areas = {
    ...panels,
    toolbar: parts.toolbar.element,
    advice: advised,
    legend: parts.legend.element,
    layers: parts.layers.element,
    inspector: parts.inspector.element,
    timeline: parts.timeline.element,
    explanation: line,
    links: readOn,
  };
  /** Text that does not fit its place can be scrolled, by keyboard too. */
  function keepReachable() {
    for (const each of [advised, line])
      setAttributes(each, { tabindex: each.scrollHeight > each.clientHeight + 1 ? 0 : null });
  }

  return { element, keepReachable, stage, advised, advice, paper, edited, back, line, live, toast, areas, stop: hoverName.stop };
}
