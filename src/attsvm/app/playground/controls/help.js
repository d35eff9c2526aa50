import { node } from "../view/dom.js";
import { KEY_HELP } from "./keyboard.js";

const PICTURE_HELP = [
  ["Colour and shape", "the input a token belongs to"],
  ["Strength of the colour", "its score: pale is low, full is high; ★ marks the best of its input"],
  ["Size", "its attention at the present step"],
  ["Dark outline", "a support token: it holds the max-margin direction in place"],
  ["Shaded halo", "the selected token"],
  [
    "Thin path, moving dot",
    "descent: p, or W z of each input; beyond the disc every factor of ten takes the same room",
  ],
  ["Broad pale band", "the direction theory predicts: the max-margin solution of the selection"],
  ["Line with dotted edges", "the separating line of an input and its margin"],
  ["Diamond, arrow, dashed ring", "a query z, the head v, the start of the run"],
];

const OTHER_HELP = [
  ["Double click", "adds a token to the input last touched"],
  ["Drag", "mouse, touch or pen; tokens, diamonds, the arrow, rings"],
];

function table(rows) {
  return node(
    "dl",
    {},
    rows.flatMap(([term, words]) => [node("dt", {}, term), node("dd", {}, words)]),
  );
}

export function createHelp() {
  const title = node("h2", { tabindex: -1 }, "What you see");
  const dialog = node(
    "dialog",
    { class: "help", "aria-label": "help" },
    title,
    table(PICTURE_HELP),
    node("h2", {}, "Pointer and keys"),
    table([...OTHER_HELP, ...KEY_HELP]),
    node(
      "p",
      { class: "hint" },
      "Inputs and tokens count from 0, as in Python. Everything is computed in this page.",
    ),
    node(
      "div",
      { class: "dialog-buttons" },
      node("button", { type: "button", class: "primary", onclick: () => dialog.close() }, "Close"),
    ),
  );
  return {
    element: dialog,
    open: () => {
      dialog.showModal();
      title.focus(); // not by autofocus, which browsers complain about in a frame
    },
  };
}
