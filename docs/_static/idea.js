// Live figures of "The idea in ten minutes", in the place of pictures or above them; without scripts the pictures stay.
// Words in <span data-live="FIGURE name=value …"> move the figure of that name.

const PLACES = [[0.35, 1.0], [1.15, 0.45], [0.75, -0.55], [-0.85, 0.35], [-0.5, -0.8]]; // as in docs/figures.py
const SCORES = [1.0, 0.6, 0.3, 0.2, 0.0]; // token 0 is the best one
const STEPS = 10_000;
const STEP_SIZE = 0.1;

const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
const along = (degrees) => [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
const degreesOf = (vector) => (Math.atan2(vector[1], vector[0]) * 180) / Math.PI;

/** Logarithms of the shares of attention under the question `p`. */
function logShares(p) {
  const logits = PLACES.map((place) => dot(place, p));
  const top = Math.max(...logits);
  const rest = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - top), 0));
  return logits.map((logit) => logit - top - rest);
}

/** The shortest p with a lead of 1 of token 0 over each other one: tried at one and at two tight constraints. */
function maxMargin() {
  const rows = PLACES.slice(1).map((place) => [PLACES[0][0] - place[0], PLACES[0][1] - place[1]]);
  const candidates = rows.map((row) => row.map((x) => x / dot(row, row)));
  rows.forEach((a, i) => rows.slice(i + 1).forEach((b) => {
    const area = a[0] * b[1] - a[1] * b[0];
    candidates.push([(b[1] - a[1]) / area, (a[0] - b[0]) / area]);
  }));
  const feasible = candidates.filter((p) => rows.every((row) => dot(row, p) > 1 - 1e-12));
  return feasible.reduce((best, p) => (dot(p, p) < dot(best, best) ? p : best));
}

/** The direction of steepest descent of the loss at `p`, measured from the winner, so that it is right at any norm. */
function descentDirection(p) {
  const logs = logShares(p);
  const winner = logs.indexOf(Math.max(...logs));
  const gaps = SCORES.map((score) => SCORES[winner] - score);
  const mean = gaps.reduce((sum, gap, t) => sum + Math.exp(logs[t]) * gap, 0);
  const largest = Math.max(...logs.filter((_, t) => t !== winner));
  const sum = [0, 0];
  PLACES.forEach((place, t) => {
    if (t === winner) return;
    const pull = Math.exp(logs[t] - largest) * (mean - gaps[t]);
    sum[0] += pull * (place[0] - PLACES[winner][0]);
    sum[1] += pull * (place[1] - PLACES[winner][1]);
  });
  const length = Math.hypot(...sum);
  return sum.map((x) => x / length);
}

/** Normalized gradient descent from zero: p after each step. */
function descend() {
  const path = [[0, 0]];
  for (let step = 0; step < STEPS; step += 1) {
    const [p, direction] = [path[step], descentDirection(path[step])];
    path.push([p[0] + STEP_SIZE * direction[0], p[1] + STEP_SIZE * direction[1]]);
  }
  return path;
}

const best = maxMargin();
let path = null; // computed when first shown

/** What each figure shows: sliders by name as [label, least, largest, step, start], the question, and a sentence. */
const FIGURES = {
  softmax: {
    sliders: { angle: ["direction of p", -180, 180, 1, 94], length: ["length of p", 0, 16, 0.1, 2] },
    question: (at) => along(at.angle).map((x) => x * at.length),
    says: (at, shares) => `The length of p is ${at.length.toFixed(1)}; the best token has ${percent(shares[0])} of the attention.`,
  },
  margin: {
    sliders: { angle: ["direction of p", -180, 180, 0.25, 68.75] },
    question: (at) => along(at.angle),
    says: (at) => {
      const lead = lines(along(at.angle)).lead;
      return lead > 0 ? `The star is ${lead.toFixed(2)} ahead: that is the margin.` : "Here another token wins: no margin.";
    },
  },
  descent: {
    sliders: { stop: ["step, by powers of ten", 0, 4, 0.01, 0] },
    question: (at) => (path ??= descend())[stepAt(at)],
    says: (at, shares, p) => {
      const norm = Math.hypot(...p);
      // 1 - cos as 2 sin^2 of half the angle: no digits are lost
      const half = (Math.atan2(p[0] * best[1] - p[1] * best[0], dot(p, best))) / 2;
      const away = norm ? (2 * Math.sin(half) ** 2).toExponential(1).replace("e-", " · 10^-") : "not defined";
      return `Step ${stepAt(at).toLocaleString("en")}: ${percent(shares[0])} on the best token, norm ${norm.toFixed(1)}, 1 − cosine ${away}.`;
    },
  },
};

const stepAt = (at) => Math.round(10 ** at.stop) - (at.stop === 0 ? 1 : 0);
const percent = (share) => `${(100 * share).toFixed(share > 0.99 && share < 1 ? 2 : 0)} %`;

/** Along a direction: how far token 0 lies, how far the farthest other one, and the lead. */
function lines(direction) {
  const first = dot(PLACES[0], direction);
  const second = Math.max(...PLACES.slice(1).map((place) => dot(place, direction)));
  return { first, second, lead: first - second };
}

const NAMESPACE = "http://www.w3.org/2000/svg";
function draw(parent, tag, attributes, text = "") {
  const element = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

/** Put a figure in the place of `picture`; returns the function that moves it. */
function live(picture, name) {
  const { sliders, question, says } = FIGURES[name];
  const figure = document.createElement("div");
  figure.className = "live";
  figure.dataset.figure = name;
  const drawing = draw(figure, "svg", { viewBox: "-1.5 -1.6 3.2 2.85", role: "img", "aria-label": picture.alt });
  const at = {};
  const inputs = {};
  for (const [key, [label, least, largest, step, start]] of Object.entries(sliders)) {
    const line = document.createElement("label");
    line.textContent = `${label} `;
    inputs[key] = Object.assign(document.createElement("input"), { type: "range", min: least, max: largest, step, value: start });
    inputs[key].addEventListener("input", () => set({ [key]: Number(inputs[key].value) }));
    at[key] = start;
    line.append(inputs[key]);
    figure.append(line);
  }
  const sentence = document.createElement("output");
  figure.append(sentence);

  function show() {
    const p = question(at);
    const shares = logShares(p).map(Math.exp);
    const length = Math.hypot(...p);
    const unit = length ? p.map((x) => x / length) : [0, 0];
    drawing.replaceChildren();
    const g = draw(drawing, "g", { transform: "scale(1 -1)" });
    draw(g, "path", { d: "M-.05 0H.05M0 -.05V.05", class: "origin" });
    if (name !== "softmax" && length) {
      const { first, second, lead } = lines(unit);
      const across = [-unit[1], unit[0]];
      for (const height of lead > 0 ? [first, second] : []) {
        const ends = [-1.5, 1.5].map((x) => [height * unit[0] + x * across[0], height * unit[1] + x * across[1]]);
        draw(g, "path", { d: `M${ends[0]}L${ends[1]}`, class: "strip" });
      }
    }
    PLACES.forEach(([x, y], t) => {
      const shown = name === "margin" ? 0.05 : 0.02 + 0.2 * Math.sqrt(shares[t]);
      const mark = draw(g, "circle", { cx: x, cy: y, r: shown, class: t === 0 ? "best" : "other" });
      draw(mark, "title", {}, `token ${t}, score ${SCORES[t]}`);
      if (name === "margin" && t === 0) mark.replaceWith(draw(g, "path", { d: star(x, y), class: "best" }));
      if (name !== "margin") {
        draw(drawing, "text", { x, y: -y - shown - 0.04, class: "share" }, percent(shares[t]));
      }
    });
    if (length) {
      const reach = name === "softmax" ? 0.25 + 0.75 * (length / 16) : 0.75;
      const tip = unit.map((x) => x * reach);
      const wing = (side) => [tip[0] - 0.1 * unit[0] + side * 0.05 * unit[1], tip[1] - 0.1 * unit[1] - side * 0.05 * unit[0]];
      draw(g, "path", { d: `M0 0L${tip}M${wing(1)}L${tip}L${wing(-1)}`, class: "question" });
      draw(drawing, "text", { x: tip[0] * 1.15, y: -tip[1] * 1.15, class: "name" }, "p");
    }
    sentence.textContent = says(at, shares, p);
  }

  function set(values) {
    for (const [key, value] of Object.entries(values)) {
      at[key] = value;
      inputs[key].value = value;
    }
    show();
  }

  const drag = (event) => {
    if (!(event.buttons & 1) || !("angle" in at)) return;
    const corner = drawing.getScreenCTM().inverse();
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(corner);
    set({ angle: Math.round(degreesOf([place.x, -place.y])) });
  };
  drawing.addEventListener("pointerdown", (event) => {
    if ("angle" in at) drawing.setPointerCapture(event.pointerId);
    drag(event);
  });
  drawing.addEventListener("pointermove", drag);
  if ("angle" in at) drawing.classList.add("turns");
  show();
  const whole = picture.closest("a") ?? picture;
  if (name === "descent") whole.before(figure); // its curves stay
  else whole.replaceWith(figure);
  return set;
}

/** A star of five points around a place. */
function star(x, y) {
  const corners = Array.from({ length: 10 }, (_, k) => {
    const [size, turn] = [k % 2 ? 0.045 : 0.11, (k * Math.PI) / 5];
    return [x + size * Math.sin(turn), y + size * Math.cos(turn)].join(" ");
  });
  return `M${corners.join("L")}Z`;
}

/** Words become buttons that move the figure they speak of. */
function connect(span, figures) {
  const [name, ...values] = span.dataset.live.split(" ");
  const button = Object.assign(document.createElement("button"), { type: "button", className: "moves" });
  button.textContent = span.textContent;
  const wanted = {};
  for (const value of values) {
    const [key, number] = value.split("=");
    if (key === "best") wanted.angle = degreesOf(best);
    else if (key === "step") wanted.stop = Math.log10(Number(number));
    else wanted[key] = Number(number);
  }
  button.addEventListener("click", () => figures[name](wanted));
  span.replaceWith(button);
}

const figures = {};
for (const name of Object.keys(FIGURES)) {
  const picture = document.querySelector(`img[src$="/${name}.png"]`);
  if (picture && document.querySelector("[data-live]")) figures[name] = live(picture, name);
}
for (const span of document.querySelectorAll("[data-live]")) connect(span, figures);
