// Copy buttons, boxes that scroll by keyboard, and the playground in the colours of the page.

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

/** The theme that the reader sees: the one chosen on the page, or else that of the system. */
function theme() {
  const chosen = document.body.dataset.theme;
  return chosen === "dark" || chosen === "light" ? chosen : darkScheme.matches ? "dark" : "light";
}

/** Tell each embedded playground the theme: in its address before it loads, by a message afterwards. */
function themePlaygrounds() {
  for (const frame of document.querySelectorAll("iframe[data-playground]")) {
    const scene = frame.dataset.playground;
    const address = `${frame.dataset.page}#theme=${theme()}${scene ? `&${scene}` : ""}`;
    if (frame.src.split("#")[0] === new URL(address, location.href).href.split("#")[0]) {
      frame.contentWindow.location.replace(address);
    } else {
      frame.src = address;
    }
  }
}

const darkScheme = matchMedia("(prefers-color-scheme: dark)");
addCopyButtons();
markScrollingBoxes();
themePlaygrounds();
addEventListener("resize", markScrollingBoxes);
addEventListener("load", markScrollingBoxes);
darkScheme.addEventListener("change", themePlaygrounds);
new MutationObserver(themePlaygrounds).observe(document.body, { attributeFilter: ["data-theme"] });
