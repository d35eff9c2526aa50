import { LINE_NAMES } from "../words.js";
import { setAttributes, setText, shape, syncChildren } from "./dom.js";
import { raised } from "../format.js";

/** The disc of true scale, the rings of ten beyond it, and the axes. */
export function createBackdrop() {
  const sheet = shape("rect", { x: 0, y: 0 });
  const disc = shape("circle", {});
  const across = shape("line", {});
  const up = shape("line", {});
  const rings = shape("g", {});
  const unit = shape("g", {});
  const element = shape("g", { "aria-hidden": "true" }, sheet, disc, rings, across, up, unit);

  function update({ plane, theme }) {
    const [cx, cy] = plane.centre;
    setAttributes(sheet, { width: plane.width, height: plane.height, fill: theme.paper });
    setAttributes(disc, { cx, cy, r: plane.disc, fill: theme.disc, stroke: theme.hairline });
    const axis = { stroke: theme.hairline, "stroke-width": 1 };
    setAttributes(across, { x1: cx - plane.disc, x2: cx + plane.disc, y1: cy, y2: cy, ...axis });
    setAttributes(up, { x1: cx, x2: cx, y1: cy - plane.disc, y2: cy + plane.disc, ...axis });
    const powers = plane.powers();
    const tight = powers.length > 2 && plane.ring(10 ** powers.at(-1)) - plane.ring(10 ** powers.at(-2)) < 17;
    syncChildren(rings, powers, String, createRing, (ring, power) => {
      updateRing(ring, power, plane, theme, !tight || power === powers[0] || power === powers.at(-1));
    });
    const marks = axisMarks(plane.radius);
    syncChildren(
      unit,
      marks,
      String,
      () => shape("text", { "font-size": 10, "text-anchor": "middle" }),
      (text, mark) => {
        const [x, y] = plane.toScreen([mark, 0]);
        setAttributes(text, { x, y: y + 13, fill: theme.faint });
        setText(text, String(mark).replace("-", "−"));
      },
    );
  }

  return { element, update };
}

/** Whole numbers (or tenths, tens ...) on the axis, at most two on each side. */
function axisMarks(radius) {
  const step = 10 ** Math.floor(Math.log10(radius));
  const last = Math.floor(radius / step / 1.001);
  const stride = last > 3 ? Math.ceil(last / 2) : 1;
  const marks = [];
  for (let k = stride; k <= last; k += stride) marks.push(Number((k * step).toPrecision(6)));
  return [...marks.map((mark) => -mark).reverse(), ...marks];
}

function createRing() {
  return shape(
    "g",
    {},
    shape("circle", { fill: "none", "stroke-dasharray": "1 5", "stroke-linecap": "round" }),
    shape("text", { "font-size": 10, "text-anchor": "middle" }),
  );
}

function updateRing(ring, power, plane, theme, named) {
  const [circle, text] = ring.children;
  const [cx, cy] = plane.centre;
  const r = plane.ring(10 ** power);
  const distance = power < 4 && power > -1 ? String(10 ** power) : `10${raised(power)}`;
  setAttributes(ring, { "data-name": LINE_NAMES.ring(distance) });
  setAttributes(circle, { cx, cy, r, stroke: theme.faint });
  const diagonal = r * Math.SQRT1_2;
  setAttributes(text, {
    x: cx - diagonal,
    y: cy - diagonal + 3,
    fill: theme.quiet,
    stroke: theme.paper,
    "stroke-width": 4,
    "paint-order": "stroke",
  });
  setText(text, named ? distance : "");
}
