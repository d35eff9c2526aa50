/**
 * A plane that shows tokens at true scale and, around them, paths that grow without bound.
 *
 * True scale up to `radius`; beyond it angles stay true and every factor of ten takes the same room: a point at distance
 * r > radius is shown at radius + c log(1 + (r - radius) / c), which meets the disc without a kink.
 */
export function makePlane({ width, height, radius, farthest }) {
  const half = Math.min(width, height) / 2 - 6;
  const disc = half * 0.7;
  const scale = disc / radius;
  const c = radius * bendFor(farthest / radius, 1 / 0.7 - 1);
  const centre = [width / 2, height / 2];

  function shownDistance(true_) {
    return true_ <= radius ? true_ : radius + c * Math.log1p((true_ - radius) / c);
  }

  return {
    width,
    height,
    radius,
    disc,
    scale,
    centre,
    /** Pixels of a point. */
    toScreen(x) {
      const distance = Math.hypot(x[0], x[1]);
      const factor = distance > radius ? shownDistance(distance) / distance : 1;
      return [centre[0] + scale * factor * x[0], centre[1] - scale * factor * x[1]];
    },
    /** The point under a pixel, held inside the disc, where scale is true. */
    toPlane(pixel) {
      const x = [(pixel[0] - centre[0]) / scale, (centre[1] - pixel[1]) / scale];
      const distance = Math.hypot(x[0], x[1]);
      return distance > radius ? [(x[0] * radius) / distance, (x[1] * radius) / distance] : x;
    },
    /** Pixels between the centre and a ring at this distance. */
    ring: (distance) => scale * shownDistance(distance),
    /** Exponents k of the rings 10^k outside the disc. */
    powers() {
      const first = Math.ceil(Math.log10(radius) + 1 / 3);
      const last = Math.floor(Math.log10(Math.max(farthest, radius)) + 1e-9);
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => first + k);
    },
    /** Where a ray in direction w leaves the picture, in pixels; null without a direction. */
    rayEnd(w) {
      const length = Math.hypot(w[0], w[1]);
      if (!(length > 0)) return null;
      const unit = [w[0] / length, -w[1] / length];
      const across = Math.abs(unit[0]) > 1e-12 ? (width / 2 - 10) / Math.abs(unit[0]) : Infinity;
      const along = Math.abs(unit[1]) > 1e-12 ? (height / 2 - 10) / Math.abs(unit[1]) : Infinity;
      const reach = Math.min(across, along);
      return [centre[0] + reach * unit[0], centre[1] + reach * unit[1]];
    },
  };
}

/** The c, in disc radii, with which the farthest point (in disc radii) is shown `room` radii outside the disc. */
function bendFor(farthest, room) {
  const widest = 0.25; // short paths are not stretched
  const shown = (c) => c * Math.log1p((farthest - 1) / c);
  if (!(farthest > 1) || shown(widest) <= room) return widest;
  let low = 1e-6;
  let high = widest;
  for (let round = 0; round < 50; round += 1) {
    const middle = (low + high) / 2;
    if (shown(middle) < room) low = middle;
    else high = middle;
  }
  return low;
}

/** Round a dragged coordinate to what a person can aim at: three digits of the radius. */
export function aimed(x, radius) {
  const unit = 10 ** (Math.floor(Math.log10(radius)) - 2);
  const digits = Math.max(0, -Math.floor(Math.log10(unit) + 1e-9));
  return x.map((entry) => Number((Math.round(entry / unit) * unit).toFixed(digits)));
}
