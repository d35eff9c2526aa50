import { nearOne } from "../format.js";
import { runName, selectionShort } from "../words.js";
import { inputColour, markerPath } from "./colours.js";
import { node, setAttributes, setText, shape, syncChildren } from "./dom.js";

/** Runs that are told apart by their line: the present one first; further starts of it are one entry. */
function namedRuns(model) {
  const marked = model.companions.map((companion, k) => ({ ...companion, k })).filter(({ dash }) => dash !== null);
  if (marked.length === 0) return [];
  const starts = model.companions.length - marked.length;
  return [
    { key: "main", name: `this run: ${runName(model.settings)}`, dash: null, width: 2.6 },
    ...marked.map(({ k, name, dash, held }) => ({
      key: `c${k}`,
      name: held ? `${name}, on the data as they were` : name,
      dash,
      width: 1.5,
    })),
    ...(starts > 0 ? [{ key: "starts", name: `${starts} other starts`, dash: null, width: 1.5 }] : []),
  ];
}

/** Names of the runs on the picture, in its upper right corner, so that saved pictures have them too. */
export function createRunLegend() {
  const element = shape("g", { "aria-hidden": "true", "font-size": 11.5 });

  function update({ model, plane, theme, layers }) {
    const letters = Math.max(16, Math.floor(plane.width / 13));
    syncChildren(
      element,
      layers.paths ? namedRuns(model) : [],
      (entry) => entry.key,
      () => shape("g", {}, shape("line", {}), shape("text", { "text-anchor": "end" })),
      (group, entry) => {
        const y = 14 + 17 * [...element.children].indexOf(group);
        const [line, text] = group.children;
        setAttributes(line, {
          x1: plane.width - 36,
          x2: plane.width - 10,
          y1: y,
          y2: y,
          stroke: theme.ink,
          "stroke-width": entry.width,
          "stroke-dasharray": entry.dash,
        });
        setAttributes(text, {
          x: plane.width - 43,
          y: y + 4,
          fill: theme.ink,
          stroke: theme.paper,
          "stroke-width": 4,
          "paint-order": "stroke",
        });
        setText(text, entry.name.length > letters ? `${entry.name.slice(0, letters - 1)}…` : entry.name);
      },
    );
  }

  return { element, update };
}

/** Tokens and queries of cloned runs where they were, as outlines, unless something lies there still. */
export function createFormerTokens() {
  const element = shape("g", { "aria-hidden": "true" });

  function update({ model, plane, theme }) {
    const present = new Set(
      model.problem.inputs.flatMap((input, i) => input.tokens.map((token) => `${i} ${token.x.join(" ")}`)),
    );
    const former = new Map();
    for (const { held, problem } of model.companions) {
      if (!held) continue;
      problem.inputs.forEach((input, i) =>
        input.tokens.forEach((token) => former.set(`${i} ${token.x.join(" ")}`, { i, x: token.x })),
      );
    }
    syncChildren(
      element,
      [...former].filter(([key]) => !present.has(key)),
      ([key]) => key,
      () => shape("path", { fill: "none", "stroke-width": 1.2, "stroke-dasharray": "2 2" }),
      (mark, [, { i, x }]) => {
        const [left, top] = plane.toScreen(x);
        setAttributes(mark, {
          d: markerPath(i, 6),
          stroke: inputColour(theme, i),
          transform: `translate(${left.toFixed(1)} ${top.toFixed(1)})`,
        });
      },
    );
  }

  return { element, update };
}

/** Runs side by side: what each selects, its cosine to where it should tend, its margin over the best in its norm. */
export function createRunTable() {
  const body = node("tbody", {});
  const head = ["run", "selects", "cosine", "margin"].map((words) => node("th", { scope: "col" }, words));
  const element = node(
    "table",
    { class: "run-table", "aria-label": "runs side by side" },
    node("thead", {}, node("tr", {}, head)),
    body,
  );

  function update({ model }) {
    const rows = model.companions.map((companion, k) => ({ ...companion, k })).filter(({ reading }) => reading !== null);
    setAttributes(element, { hidden: rows.length === 0 });
    const own = {
      k: "main",
      name: `this run: ${runName(model.settings)}`,
      reading: { selected: model.selected, cosine: model.ownCosine, efficiency: model.ownEfficiency },
    };
    syncChildren(
      body,
      rows.length === 0 ? [] : [own, ...rows],
      ({ k }) => String(k),
      () => node("tr", {}, node("th", { scope: "row" }), node("td", {}), node("td", {}), node("td", {})),
      (row, { name, held, reading }) => {
        const [title, selects, cosine, margin] = row.children;
        setText(title, held ? `${name} · data as they were` : name);
        setText(selects, selectionShort(reading.selected));
        setText(cosine, reading.cosine === null ? "–" : nearOne(reading.cosine));
        setText(margin, reading.efficiency === null ? "–" : nearOne(reading.efficiency));
      },
    );
  }

  return { element, update };
}
