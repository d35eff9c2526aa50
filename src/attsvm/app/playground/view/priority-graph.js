import { collapsedOrder } from "../maths/next-token.js";
import { setAttributes, shape } from "./dom.js";

const LETTER = 7.7;
const LINE = 18;
const PAD = 10;
const GAP = { across: 14, down: 12, level: 40 };

/** Words in lines of at most this many letters. */
function wrapped(words, sign, most) {
  const lines = [""];
  words.forEach((word, k) => {
    const piece = `${word}${k < words.length - 1 ? ` ${sign}` : ""}`;
    const line = lines[lines.length - 1];
    if (line === "") lines[lines.length - 1] = piece;
    else if (line.length + 1 + piece.length <= most) lines[lines.length - 1] = `${line} ${piece}`;
    else lines.push(piece);
  });
  return lines.map((line) => (line.length > most ? `${line.slice(0, most - 1)}…` : line));
}

/** The order in words, for those who do not see the picture. */
function orderText(graph, { groups, arrows }, words) {
  const named = groups.map((group) => group.flat().map((id) => words[id]).join(group[0].length > 1 ? " and " : " or "));
  const said = arrows.length > 0 ? arrows.map(([a, b]) => `${named[a]} before ${named[b]}`) : named;
  const shared = named.filter((_, k) => groups[k][0].length > 1).map((name) => `${name} share`);
  return `Priorities after “${words[graph.last]}”: ${[...said, ...shared].join("; ")}`;
}

/**
 * The priority graph after one word, components boxed, from top to bottom: a coloured box holds words that beat each
 * other in turn and share the attention, a plain one words that are not compared with each other.
 */
export function drawPriorities(svg, graph, words, width) {
  const order = collapsedOrder(graph);
  const { groups, arrows } = order;
  const level = groups.map(() => 0);
  for (const [a, b] of arrows) level[b] = Math.max(level[b], level[a] + 1); // groups stand in priority order
  const most = Math.max(8, Math.min(34, Math.floor((width - 2 * PAD - 4) / LETTER)));
  const boxes = groups.map((group, k) => {
    const shared = group[0].length > 1;
    const lines = wrapped(group.flat().map((id) => words[id]), shared ? "⇄" : "·", most);
    const wide = Math.max(...lines.map((line) => line.length)) * LETTER + 2 * PAD;
    return { shared, lines, level: level[k], wide: Math.max(40, wide), high: lines.length * LINE + PAD };
  });
  let y = 4;
  for (let now = 0; now <= Math.max(...level); now++) {
    const rows = [[]];
    for (const box of boxes.filter((each) => each.level === now)) {
      const row = rows[rows.length - 1];
      const used = row.reduce((sum, each) => sum + each.wide + GAP.across, 0);
      if (row.length > 0 && used + box.wide > width - 4) rows.push([box]);
      else row.push(box);
    }
    for (const row of rows) {
      let x = (width - row.reduce((sum, each) => sum + each.wide + GAP.across, -GAP.across)) / 2;
      const high = Math.max(...row.map((each) => each.high));
      for (const box of row) {
        Object.assign(box, { x: x + box.wide / 2, top: y, bottom: y + box.high });
        x += box.wide + GAP.across;
      }
      y += high + GAP.down;
    }
    y += GAP.level - GAP.down;
  }
  const height = y - GAP.level + 6;
  const lines = arrows.map(([a, b]) => {
    const [from, to] = [boxes[a], boxes[b]];
    const middle = (from.bottom + to.top) / 2;
    const d = `M${from.x} ${from.bottom}C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.top - 7}`;
    const tip = `M${to.x - 5} ${to.top - 8}L${to.x} ${to.top - 1}L${to.x + 5} ${to.top - 8}Z`;
    return [shape("path", { d, class: "link" }), shape("path", { d: tip, class: "tip" })];
  });
  const drawn = boxes.map(({ shared, lines: texts, x, top, wide, high }) =>
    shape(
      "g",
      { class: shared ? "box shared" : "box" },
      shape("rect", { x: x - wide / 2, y: top, width: wide, height: high, rx: 8 }),
      texts.map((line, k) => {
        const text = shape("text", { x, y: top + PAD / 2 + 13 + k * LINE, "text-anchor": "middle" });
        text.textContent = line;
        return text;
      }),
    ),
  );
  setAttributes(svg, { width, height, viewBox: `0 0 ${width} ${height}`, "aria-label": orderText(graph, order, words) });
  svg.replaceChildren(...lines.flat(), ...drawn);
}
