import { directionCosine } from "../maths/numbers.js";
import { inputColour } from "./colours.js";
import { node, setAttributes, setText, shape, syncChildren } from "./dom.js";
import { grouped, percent, raised, scientific, significant } from "../format.js";

const WIDTH = 320;
const HEIGHT = 84;
const LEFT = 34;
const RIGHT = 18;
const BOTTOM = 66;
const TOP = 8;

/** Iterations on a logarithmic axis that begins at 0. */
function acrossAt(step, steps) {
  return LEFT + ((WIDTH - LEFT - RIGHT) * Math.log1p(step)) / Math.log1p(Math.max(1, steps));
}

export function linearScale(low, high) {
  const span = high > low ? high - low : 1;
  return (value) => BOTTOM - ((BOTTOM - TOP) * (value - low)) / span;
}

function curveData(steps, values, last, upAt) {
  let data = "";
  values.forEach((value, k) => {
    if (value === null || !Number.isFinite(value)) return;
    data += `${data === "" ? "M" : "L"}${acrossAt(steps[k], last).toFixed(1)} ${upAt(value).toFixed(1)}`;
  });
  return data;
}

/** A small chart against iterations: its figure, the number in its title, and what `drawChart` fills. */
export function createChart(title) {
  const number = node("span", { class: "value" });
  const ticks = shape("g", { "font-size": 9.5 });
  const lines = shape("g", { fill: "none", "stroke-linejoin": "round" });
  const cursor = shape("line", { y1: TOP - 4, y2: BOTTOM });
  const svg = shape(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": title },
    ticks,
    lines,
    cursor,
  );
  return {
    element: node("figure", { class: "curve" }, node("figcaption", {}, node("span", {}, title), number), svg),
    number,
    ticks,
    lines,
    cursor,
  };
}

export function drawChart(chart, { curves, last, now, theme, upAt, marks }) {
  const powers = [1, 10, 100, 1000, 10000].filter((step) => step <= last);
  const labels = [
    ...powers.map((step) => ({
      key: `x${step}`,
      x: acrossAt(step, last),
      y: HEIGHT - 5,
      text: grouped(step),
      anchor: "middle",
      rule: false,
    })),
    ...marks.map(({ value, text }) => ({
      key: `y${text}`,
      x: LEFT - 5,
      y: upAt(value) + 3,
      text,
      anchor: "end",
      rule: true,
    })),
  ];
  syncChildren(
    chart.ticks,
    labels,
    (label) => label.key,
    () => shape("g", {}, shape("line", {}), shape("text", {})),
    (group, label) => {
      const [rule, text] = group.children;
      setAttributes(
        rule,
        label.rule
          ? { x1: LEFT, x2: WIDTH - RIGHT, y1: label.y - 3, y2: label.y - 3, stroke: theme.hairline }
          : { x1: label.x, x2: label.x, y1: BOTTOM, y2: BOTTOM + 4, stroke: theme.faint },
      );
      setAttributes(text, { x: label.x, y: label.y, "text-anchor": label.anchor, fill: theme.quiet });
      setText(text, label.text);
    },
  );
  syncChildren(
    chart.lines,
    curves,
    (curve) => curve.key,
    () => shape("path", {}),
    (path, curve) => {
      setAttributes(path, {
        d: curveData(curve.steps, curve.values, last, upAt),
        stroke: curve.colour,
        "stroke-width": curve.side ? 1.2 : 2,
        "stroke-opacity": curve.side ? 0.75 : 1,
        "stroke-dasharray": curve.dash ?? null,
      });
    },
  );
  const x = acrossAt(now, last);
  setAttributes(chart.cursor, { x1: x, x2: x, stroke: theme.ink, "stroke-width": 1, "stroke-opacity": 0.5 });
}

/** Norm, probability and cosine against iterations; companions thin and dashed. */
export function createCurves() {
  const chance = createChart("Probability of the selected tokens");
  const size = createChart("Norm of the weights");
  const angle = createChart("1 − cosine to the predicted direction");
  const element = node("div", { class: "curves" }, chance.element, size.element, angle.element);

  function update({ model, theme }) {
    const { run, problem } = model;
    const now = run.steps[model.index];
    const several = problem.inputs.length > 1;
    const sides = model.companions.filter((companion) => companion.run !== null);
    const last = Math.max(...[run, ...sides.map((side) => side.run)].map(({ steps }) => steps[steps.length - 1]));
    const common = { last, now, theme };
    drawChart(chance, {
      ...common,
      upAt: linearScale(0, 1),
      marks: [
        { value: 0, text: "0" },
        { value: 1, text: "1" },
      ],
      curves: [
        ...sides.flatMap((side, k) =>
          problem.inputs.map((_, i) => ({
            key: `c${k}-${i}`,
            side: true,
            dash: side.dash ?? "1 3",
            colour: inputColour(theme, i),
            steps: side.run.steps,
            values: side.run.probability.map((each) => each[i] ?? null),
          })),
        ),
        ...problem.inputs.map((_, i) => ({
          key: `m${i}`,
          colour: inputColour(theme, i),
          steps: run.steps,
          values: run.probability.map((each) => each[i]),
        })),
      ],
    });
    const least = Math.min(...run.probability[model.index]);
    setText(chance.number, `${several ? "least " : ""}${percent(least)}`);

    const norms = [run, ...sides.map((side) => side.run)].flatMap((each) => each.norm);
    const top = Math.max(1e-9, ...norms);
    const even = linearScale(0, top);
    const steep = linearScale(-1, Math.log10(top));
    const logarithmic = top > 30 * Math.max(1e-9, ...run.norm);
    drawChart(size, {
      ...common,
      upAt: logarithmic ? (value) => steep(Math.log10(Math.max(0.1, value))) : even,
      marks: [
        { value: 0, text: logarithmic ? "0.1" : "0" },
        { value: top, text: significant(top) },
      ],
      curves: [
        ...sides.map((side, k) => ({
          key: `c${k}`,
          side: true,
          dash: side.dash ?? "1 3",
          colour: theme.quiet,
          steps: side.run.steps,
          values: side.run.norm,
        })),
        { key: "m", colour: theme.ink, steps: run.steps, values: run.norm },
      ],
    });
    setText(size.number, significant(run.norm[model.index]));

    const short = (cosine) => (cosine === null ? null : Math.log10(Math.max(1e-9, 1 - cosine)));
    const own = model.cosine.map(short);
    const sideCosines = sides.map((side) => {
      const aim = (side.prediction ?? model.prediction)?.weights;
      return aim ? side.run.weights.map((weights) => short(directionCosine(weights, aim))) : [];
    });
    const known = [own, ...sideCosines].flat().filter((value) => value !== null);
    const floor = Math.floor(Math.min(-1, ...known));
    drawChart(angle, {
      ...common,
      upAt: linearScale(floor, 0.31),
      marks: [
        { value: 0, text: "1" },
        { value: floor, text: `10${raised(floor)}` },
      ],
      curves: [
        ...sideCosines.map((values, k) => ({
          key: `c${k}`,
          side: true,
          dash: sides[k].dash ?? "1 3",
          colour: theme.quiet,
          steps: sides[k].run.steps,
          values,
        })),
        { key: "m", colour: theme.ink, steps: run.steps, values: own },
      ],
    });
    const cosine = model.cosine[model.index];
    setText(angle.number, cosine === null ? "–" : scientific(Math.max(0, 1 - cosine), 1));
  }

  return { element, update };
}
