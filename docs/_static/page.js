// Copy buttons, boxes that scroll by keyboard, pictures in full, and the playground in the colours of the page.

const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const PLAYGROUND = new URL("../playground-page.html", document.currentScript.src).href;

/** Put a button into every block of code that copies what stands there, without prompts of a shell. */
function addCopyButtons() {
  for (const block of document.querySelectorAll("div.highlight")) {
    const code = block.querySelector("pre");
    if (!code || block.closest(".sphx-glr-script-out")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(textToCopy(code));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
}

/** What is typed: of a console session the lines after the prompts, of other code everything. */
function textToCopy(code) {
  const lines = code.textContent.replace(/\n+$/, "").split("\n");
  const typed = lines.filter((line) => /^(\$|>>>|\.\.\.) /.test(line));
  const prompts = code.closest(".highlight-console, .highlight-pycon, .highlight-default") && typed.length;
  return prompts ? typed.map((line) => line.replace(/^(\$|>>>|\.\.\.) /, "")).join("\n") : lines.join("\n");
}

/** Boxes that scroll sideways can be reached with the tab key, and only they. */
function markScrollingBoxes() {
  for (const box of document.querySelectorAll(".table-wrapper, .highlight pre, .formula")) {
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight + 1;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

/** The theme has two boxes beside the text; screen readers tell them apart by name. */
function nameSidebars() {
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "All pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
}

/** Pictures that are shown smaller than they are open in full on a click. */
function linkPictures() {
  for (const picture of document.querySelectorAll("article img:not(a img)")) {
    if (picture.closest(".sphx-glr-thumbcontainer")) continue;
    const link = Object.assign(document.createElement("a"), { href: picture.src, className: "picture" });
    picture.replaceWith(link);
    link.append(picture);
  }
}

/** The theme that the reader sees: the one chosen on the page, or else that of the system. */
function theme() {
  const chosen = document.body.dataset.theme;
  return chosen === "dark" || chosen === "light" ? chosen : darkScheme.matches ? "dark" : "light";
}

/** A frame with the playground in the place of each marked picture, and links to scenes in the place of commands. */
function addPlaygrounds() {
  for (const mark of document.querySelectorAll("div[data-playground]")) {
    const frame = Object.assign(document.createElement("iframe"), { title: "attsvm playground", className: "playground" });
    frame.src = `${PLAYGROUND}#${mark.dataset.playground}&theme=${theme()}`;
    mark.append(linkTo(mark.dataset.playground, "Open the playground on a page of its own"), frame);
    mark.nextElementSibling?.querySelector("img")?.remove();
  }
  for (const mark of document.querySelectorAll("span[data-scene]")) {
    mark.replaceWith(linkTo(`scene=${mark.dataset.scene}`, "Open in the playground"));
  }
}

function linkTo(scene, words) {
  return Object.assign(document.createElement("a"), { href: `${PLAYGROUND}#${scene}`, textContent: words });
}

/** After a change of theme the playgrounds change theirs, and keep what they show. */
function themePlaygrounds() {
  for (const frame of document.querySelectorAll("iframe.playground")) {
    frame.contentWindow.location.replace(`${PLAYGROUND}#theme=${theme()}`);
  }
}

// Pages opened from a disk may not read each other: the search shows titles then, without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

addCopyButtons();
nameSidebars();
markScrollingBoxes();
addPlaygrounds();
linkPictures();
addEventListener("resize", markScrollingBoxes);
addEventListener("load", markScrollingBoxes);
darkScheme.addEventListener("change", themePlaygrounds);
new MutationObserver(themePlaygrounds).observe(document.body, { attributeFilter: ["data-theme"] });
