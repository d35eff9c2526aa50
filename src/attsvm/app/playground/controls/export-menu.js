import { copyText, saveFile } from "../export/files.js";
import { FileError, readNpz } from "../export/npz-reader.js";
import { npzOf } from "../export/npz.js";
import { pngOf, svgTextOf } from "../export/picture.js";
import { problemOfArrays } from "../export/problem-of-arrays.js";
import { LIMITS } from "../state/limits.js";
import { node, setText } from "../view/dom.js";

/** Copy the link, save the picture or the data, copy Python. */
export function createExportMenu({ model, snippet, theme, plot, say, dialogs, address, onProblem }) {
  const area = node("textarea", { readonly: true, spellcheck: "false", rows: 18, "aria-label": "text to copy" });
  const title = node("h2", { id: "code-title" });
  const copy = node("button", { type: "button", class: "primary", onclick: () => copyArea() }, "Copy");
  const dialog = node(
    "dialog",
    { class: "code", "aria-labelledby": "code-title" },
    title,
    area,
    node(
      "div",
      { class: "dialog-buttons" },
      copy,
      node("button", { type: "button", onclick: () => dialog.close() }, "Close"),
    ),
  );
  dialogs.append(dialog);

  async function copyArea() {
    area.select();
    setText(copy, (await copyText(area.value)) ? "Copied" : "Press Ctrl C");
  }

  function offer(words, text) {
    setText(title, words);
    setText(copy, "Copy");
    area.value = text;
    dialog.showModal();
    area.scrollTop = 0;
  }

  async function link() {
    if (await copyText(address())) say("The link is on the clipboard.");
    else offer("Link to what is on screen", address());
  }

  async function png() {
    try {
      saveFile("attsvm.png", await pngOf(svgTextOf(plot, model(), theme())), "image/png");
    } catch (error) {
      say(`The picture could not be made: ${error.message}`);
    }
  }

  const chooser = node("input", {
    type: "file",
    accept: ".npz",
    hidden: true,
    "aria-label": "a data set to open",
    onchange: () => {
      if (chooser.files.length > 0) open(chooser.files[0]);
      chooser.value = "";
    },
  });
  dialogs.append(chooser);

  /** Show the data set of a .npz file, or say in a sentence why not. */
  async function open(file) {
    try {
      if (file.size > LIMITS.file) throw new FileError("it is larger than any data set that can be drawn");
      const found = problemOfArrays(await readNpz(new Uint8Array(await file.arrayBuffer())));
      const sentence = onProblem(found);
      if (sentence !== null) throw new FileError(sentence);
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      say(`${file.name} cannot be shown: ${error.message}.`);
    }
  }

  const actions = [
    ["link", "Copy link", link],
    [
      "python",
      "Python that reproduces this …",
      () => offer("Python that reproduces what is on screen", snippet()),
    ],
    ["open", "Open data (.npz) …", () => chooser.click()],
    ["npz", "Save data (.npz)", () => saveFile("attsvm.npz", npzOf(model()), "application/zip")],
    ["png", "Save picture (.png)", png],
    ["svg", "Save picture (.svg)", () => saveFile("attsvm.svg", svgTextOf(plot, model(), theme()), "image/svg+xml")],
  ];
  const menu = node(
    "details",
    { class: "menu" },
    node("summary", { role: "button", title: "share and save" }, "Share"),
    node(
      "div",
      { class: "menu-items" },
      actions.map(([key, words, action]) =>
        node(
          "button",
          {
            type: "button",
            "data-action": key,
            onclick: () => {
              menu.open = false;
              action();
            },
          },
          words,
        ),
      ),
    ),
  );
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget !== null && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.firstChild.focus();
  });
  return { element: menu, open };
}
