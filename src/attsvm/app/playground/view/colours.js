/** Okabe and Ito's colours, which colour-blind readers can tell apart, and two more; input i takes colour i. */
const LIGHT_INPUTS = ["#0072B2", "#D55E00", "#009E73", "#B5488A", "#A87000", "#2F8FC4", "#7A5195", "#7A5E28"];
const DARK_INPUTS = ["#58B2EC", "#FF8A3D", "#35C79B", "#EBA0CB", "#F0B429", "#9AD4F5", "#BFA0E0", "#CDB27A"];

/** Destinations of descent: none is near the colour of an input. */
const LIGHT_DESTINATIONS = ["#A6C400", "#6A3DE8", "#E0103F", "#E83CE8", "#D6D08A", "#2BD42B", "#C69FA6", "#59636B"];
const DARK_DESTINATIONS = ["#8FB300", "#8A4DFF", "#FF2D5C", "#E020D0", "#6B6F2A", "#1FB31F", "#8C6A70", "#5D6A75"];

/** Light and dark, complete, so that an exported picture needs no style sheet. */
export const THEMES = {
  light: {
    name: "light",
    paper: "#ffffff",
    disc: "#f7f8f6",
    ink: "#1d2429",
    quiet: "#66717a",
    faint: "#a8b0b6",
    hairline: "#e1e5e5",
    warning: "#b3261e",
    head: "#444c52",
    inputs: LIGHT_INPUTS,
    destinations: LIGHT_DESTINATIONS,
  },
  dark: {
    name: "dark",
    paper: "#14181b",
    disc: "#1a2024",
    ink: "#e9edef",
    quiet: "#9aa6ae",
    faint: "#67737b",
    hairline: "#2b3338",
    warning: "#ff8f85",
    head: "#c3ccd2",
    inputs: DARK_INPUTS,
    destinations: DARK_DESTINATIONS,
  },
};

export function inputColour(theme, i) {
  return theme.inputs[i % theme.inputs.length];
}

/** The same for words, dark enough to read on paper. */
export function inputInk(theme, i) {
  return mixed(inputColour(theme, i), theme.ink, 0.75);
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** A colour mixed with another: share 1 is the first, 0 the second. */
export function mixed(first, second, share) {
  const [a, b] = [channels(first), channels(second)];
  return `#${a
    .map((value, k) =>
      Math.round(share * value + (1 - share) * b[k])
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

/** Shapes beside the colours, so that nothing hangs on colour alone: outline of input i's marker of radius r. */
export function markerPath(i, r) {
  const corner = (angles, size) =>
    `${angles.map((angle, k) => `${k === 0 ? "M" : "L"}${(size * Math.cos(angle)).toFixed(2)} ${(size * Math.sin(angle)).toFixed(2)}`).join("")}Z`;
  const ngon = (sides, turn, size) =>
    corner(
      Array.from({ length: sides }, (_, k) => turn + (2 * Math.PI * k) / sides),
      size,
    );
  const kind = i % 8;
  if (kind === 0) return `M${-r} 0A${r} ${r} 0 1 0 ${r} 0A${r} ${r} 0 1 0 ${-r} 0Z`;
  if (kind === 1) return ngon(4, Math.PI / 4, 1.22 * r);
  if (kind === 2) return ngon(3, -Math.PI / 2, 1.3 * r);
  if (kind === 3) return ngon(5, -Math.PI / 2, 1.15 * r);
  if (kind === 4) return ngon(3, Math.PI / 2, 1.3 * r);
  if (kind === 5) return ngon(6, 0, 1.12 * r);
  if (kind === 6) return ngon(8, Math.PI / 8, 1.08 * r);
  return ngon(4, 0, 1.3 * r);
}
