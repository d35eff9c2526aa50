"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.body;
  const text = document.getElementById("text");
  const element = (name, content, kind) => Object.assign(document.createElement(name), { textContent: content, className: kind || "" });
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Bars to the right speak for the chosen token, to the left for the other; all bars of a panel have one scale.
  const bars = (shares) => {
    const most = Math.max(...shares.map((share) => Math.abs(share.value))) || 1;
    const box = element("div", "", "bars");
    shares.forEach(({ name, value }) => {
      const label = element("span", name);
      label.title = name;
      const length = (50 * Math.abs(value)) / most;
      const bar = element("div");
      bar.innerHTML = `<svg viewBox="0 0 100 16" preserveAspectRatio="none" aria-hidden="true"><line class="grid" x1="50" x2="50" y1="0" y2="16"/><rect class="${value > 0 ? "for" : "against"}" x="${value > 0 ? 50 : 50 - length}" width="${length}" y="2" height="12"/></svg>`;
      box.append(label, bar, element("span", (value > 0 ? "+" : "−") + Math.abs(value).toPrecision(3), "value"));
    });
    return box;
  };

  const show = (query) => {
    const found = data.queries[query];
    if (!found) return;
    [...text.children].forEach((button, position) => {
      button.style.background = `rgb(var(--heat) / ${(0.75 * found.attention[position]).toFixed(3)})`;
      button.className = position === found.chosen ? "chosen" : position === found.other ? "other" : "";
      button.title = `attention ${(100 * found.attention[position]).toFixed(1)}%`;
      button.setAttribute("aria-pressed", String(position === query));
    });
    document.getElementById("sentence").textContent = found.sentence;
    document.getElementById("flips").replaceChildren(...found.flips.map((flip) => element("li", flip)));
    document.getElementById("panels").replaceChildren(...Object.entries(found.panels).map(([title, shares]) => {
      const card = element("div", "", "card");
      card.append(element("h3", title), bars(shares));
      return card;
    }));
  };

  data.tokens.forEach((token, position) => {
    const button = element("button", token.replace(/^[Ġ▁]/, "␣"));
    button.type = "button";
    button.disabled = !data.queries[position];
    button.addEventListener("click", () => { history.replaceState(null, "", `#${position}`); show(position); });
    text.append(button);
  });
  const asked = Number(location.hash.slice(1));
  show(location.hash && data.queries[asked] ? asked : data.first);
})();
