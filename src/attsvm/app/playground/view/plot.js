import { createBackdrop } from "./backdrop.js";
import { createBasin } from "./basin-image.js";
import { createFormerTokens, createRunLegend } from "./comparison.js";
import { setAttributes, setText, shape } from "./dom.js";
import { createFreshMarks } from "./fresh-marks.js";
import { createHandles } from "./handles.js";
import { createConflicts, createLines } from "./margin-lines.js";
import { makePlane } from "./plane.js";
import { createPaths, createRays } from "./paths.js";
import { createTokens } from "./tokens.js";

const PLOT_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif";

/** How far the paths go, rounded up to 1, 2 or 5 times a power of ten so that the picture stands still while they grow. */
function farthestOf(model) {
  let largest = 1e-9;
  const problem = model.problem;
  const stretch =
    problem.kind === "prompt" ? 1 : Math.max(...problem.inputs.map(({ query }) => Math.hypot(query[0], query[1])));
  for (const run of [model.run, ...model.companions.map((companion) => companion.run)]) {
    if (run) largest = Math.max(largest, run.norm[run.norm.length - 1] * stretch);
    if (run && model.headTrained)
      largest = Math.max(largest, Math.hypot(...run.parameters[run.parameters.length - 1].head));
  }
  const power = 10 ** Math.floor(Math.log10(Math.min(largest, 1e12)));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= 0.999 * Math.min(largest, 1e12));
}

/** The radius of the disc: the view's, or more where a token, query or head lies further out. */
export function discRadius(state) {
  let reach = state.view.extent;
  const include = (x) => {
    reach = Math.max(reach, 1.12 * Math.hypot(x[0], x[1]));
  };
  for (const input of state.problem.inputs) {
    for (const token of input.tokens) include(token.x);
    if (state.problem.kind === "matrix") include(input.query);
  }
  include(state.settings.trainHead ? state.settings.startHead : state.problem.head);
  return reach;
}

/** The picture of the plane; `update` redraws it, `plane()` maps pixels to points. */
export function createPlot() {
  const layers = [
    createBackdrop(),
    createBasin(),
    createLines(),
    createRays(),
    createConflicts(),
    createPaths(),
    createFreshMarks(),
    createFormerTokens(),
    createHandles(),
    createTokens(),
    createRunLegend(),
  ];
  const badge = shape("text", { "font-size": 13, "font-weight": 600, "text-anchor": "middle" });
  const inside = shape("circle", {});
  const element = shape(
    "svg",
    {
      class: "plane",
      role: "application",
      "aria-label": "The plane of tokens. Tab walks through what can be moved, arrow keys move it.",
      "font-family": PLOT_FONT,
    },
    shape("defs", {}, shape("clipPath", { id: "inside-disc" }, inside)),
    ...layers.map((layer) => layer.element),
    badge,
  );
  let plane = makePlane({ width: 600, height: 600, radius: 1.5, farthest: 100 });

  function update({ model, theme, size, radius, focus }) {
    plane = makePlane({ ...size, radius, farthest: farthestOf(model) });
    setAttributes(element, { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height });
    setAttributes(inside, { cx: plane.centre[0], cy: plane.centre[1], r: plane.disc });
    const scene = { model, plane, theme, focus, layers: model.state.view.layers };
    for (const layer of layers) layer.update(scene);
    setAttributes(badge, {
      x: plane.centre[0],
      y: 22,
      fill: theme.warning,
      stroke: theme.paper,
      "stroke-width": 5,
      "paint-order": "stroke",
    });
    setText(badge, model.badge);
  }

  return { element, update, plane: () => plane };
}
