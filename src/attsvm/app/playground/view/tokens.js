import { inputColour, markerPath, mixed } from "./colours.js";
import { setAttributes, setText, shape, syncChildren } from "./dom.js";
import { tokenLabel } from "../words.js";

/** Radius of a token's marker: its area grows with its attention. */
function tokenRadius(attention) {
  return 5 + 8 * Math.sqrt(Math.min(1, Math.max(0, attention)));
}

/** How strong the colour of a token is: its score between the lowest and the highest of its input. */
function scoreStrength(scores, t) {
  const low = Math.min(...scores);
  const high = Math.max(...scores);
  return high > low ? 0.08 + 0.92 * ((scores[t] - low) / (high - low)) : 0.5;
}

/** Directions of labels, in pixels: away from the tokens close by, else away from the centre of the plane. */
function labelAngles(places, centre) {
  return places.map((own, k) => {
    let away = [0, 0];
    let twins = 0;
    places.forEach((other, j) => {
      const apart = [own[0] - other[0], own[1] - other[1]];
      const distance = Math.hypot(apart[0], apart[1]);
      if (j === k || distance > 40) return;
      if (distance < 1) twins += j < k ? 1 : 0;
      else away = [away[0] + apart[0] / distance ** 2, away[1] + apart[1] / distance ** 2];
    });
    const out = [own[0] - centre[0], own[1] - centre[1]];
    const size = Math.hypot(out[0], out[1]);
    const bias = size > 4 ? [out[0] / size, out[1] / size] : [0, 1];
    const angle = Math.atan2(away[1] + 0.012 * bias[1], away[0] + 0.012 * bias[0]);
    return angle + (twins * 2 * Math.PI) / 5;
  });
}

/** Tokens: colour and shape say the input, strength of colour the score, size the attention; rings mark support. */
export function createTokens() {
  const element = shape("g", {});

  function update({ model, plane, theme, focus }) {
    const items = [];
    model.problem.inputs.forEach((input, i) =>
      input.tokens.forEach((token, t) => items.push({ i, t, token, at: plane.toScreen(token.x) })),
    );
    labelAngles(
      items.map(({ at }) => at),
      plane.centre,
    ).forEach((angle, k) => {
      items[k].angle = angle;
    });
    syncChildren(
      element,
      items,
      ({ i, t }) => `token-${i}-${t}`,
      createToken,
      (group, item) => {
        updateToken(group, item, { model, theme, focus });
      },
    );
  }

  return { element, update };
}

function createToken({ i, t }) {
  return shape(
    "g",
    {
      class: "item token",
      tabindex: 0,
      role: "button",
      "data-item": `token-${i}-${t}`,
      "aria-roledescription": "token that can be moved",
    },
    shape("circle", { r: 17, fill: "transparent", class: "reach" }),
    shape("circle", { fill: "none", class: "halo" }),
    shape("path", { fill: "none", "stroke-width": 2 }),
    shape("path", { "stroke-width": 1.6 }),
    shape("text", { "text-anchor": "middle", "font-size": 11.5 }),
  );
}

function updateToken(group, { i, t, at, angle }, { model, theme, focus }) {
  const [, halo, ring, marker, label] = group.children;
  const attention = model.attention[i][t];
  const colour = inputColour(theme, i);
  const r = tokenRadius(attention);
  const chosen = model.shown[i] === t;
  const support = model.support[i].has(t);
  const best = model.optimal.tokens[i] === t || (model.optimal.tied[i] && model.bestSet[i].has(t));
  setAttributes(group, {
    transform: `translate(${at[0].toFixed(2)} ${at[1].toFixed(2)})`,
    "aria-label": tokenLabel(model, i, t),
  });
  setAttributes(halo, { r: chosen ? r + 8 : 0, fill: colour, "fill-opacity": 0.16 });
  setAttributes(ring, { d: support ? markerPath(i, r + 5) : "", stroke: theme.ink });
  setAttributes(marker, {
    d: markerPath(i, r),
    fill: mixed(colour, theme.disc, scoreStrength(model.scores[i], t)),
    stroke: colour,
  });
  const crowded = model.problem.inputs.reduce((sum, input) => sum + input.tokens.length, 0) > 14;
  const named = !crowded || chosen || support || focus === `token-${i}-${t}`;
  const away = r + (support ? 15 : chosen ? 14 : 10);
  setAttributes(label, {
    x: away * Math.cos(angle),
    y: 4 + away * Math.sin(angle),
    fill: theme.ink,
    stroke: theme.disc,
    "stroke-width": 3,
    "paint-order": "stroke",
    "font-weight": chosen ? 700 : 400,
  });
  setText(label, named ? `${t}${best ? "★" : ""}` : "");
}
