"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.body;
  const detail = document.getElementById("detail");
  const table = document.querySelector("table.all");
  const escapeText = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
  const number = (value, digits = 3) => (value === null || value === undefined ? "–" : Number(value).toPrecision(digits).replace(/\.?0+(?=e|$)/, ""));
  const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)}%`);

  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  // Sorting: numbers from large to small first, words from a to z; cells without a number go last.
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const rows = [...table.tBodies[0].rows];
    const numeric = rows.some((row) => row.cells[column].dataset.value !== undefined);
    const before = heading.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    const key = (row) => (numeric ? (row.cells[column].dataset.value === "" ? null : Number(row.cells[column].dataset.value)) : row.cells[column].textContent);
    const compare = (a, b) => (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }));
    rows.sort((one, other) => {
      const a = key(one), b = key(other);
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    headings.forEach((cell) => cell.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
  }));

  // A plot frame: numbers to pixels, ticks, labels.
  const frame = (width, height, left, bottom) => ({ width, height, left, bottom, top: 12, right: 12 });
  const line = (x1, y1, x2, y2, name) => `<line class="${name}" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"/>`;
  const label = (x, y, text, anchor = "middle", name = "tick") => `<text class="${name}" x="${x}" y="${y}" text-anchor="${anchor}">${text}</text>`;

  const histogram = (found) => {
    const own = found.head.margins;
    if (!own.length) return `<p class="quiet">${escapeText(found.head.status)}</p>`;
    const other = found.random_weights.length ? found.random_weights[0].margins : [];
    const f = frame(520, 250, 44, 44), bins = 32;
    const sorted = [...own, ...other].sort((a, b) => a - b);
    const high = Math.max(sorted[Math.floor(0.995 * (sorted.length - 1))], 1e-9), low = Math.min(0, sorted[0]);
    const count = (values) => {
      const counts = new Array(bins).fill(0);
      values.forEach((v) => { counts[Math.max(0, Math.min(bins - 1, Math.floor((bins * (v - low)) / (high - low))))] += 1; });
      return counts.map((c) => c / Math.max(values.length, 1));
    };
    const mine = count(own), theirs = count(other), most = Math.max(...mine, ...theirs);
    const w = (f.width - f.left - f.right) / bins, h = f.height - f.top - f.bottom;
    const bar = (share, k, name) => (share ? `<rect class="bar ${name}" x="${(f.left + k * w + 0.5).toFixed(1)}" width="${(w - 1).toFixed(1)}" y="${(f.top + h * (1 - share / most)).toFixed(1)}" height="${((h * share) / most).toFixed(1)}"/>` : "");
    let svg = "";
    for (let k = 0; k <= 4; k += 1) {
      const x = f.left + (k / 4) * (f.width - f.left - f.right);
      svg += line(x, f.top, x, f.top + h, "grid") + label(x, f.top + h + 16, number(low + (k / 4) * (high - low), 2));
    }
    svg += mine.map((s, k) => bar(s, k, "trained")).join("") + theirs.map((s, k) => bar(s, k, "random")).join("");
    svg += label(f.left - 6, f.top + 10, percent(most), "end") + label(f.left - 6, f.top + h, "0", "end");
    svg += label(f.left + (f.width - f.left - f.right) / 2, f.height - 8, "margin of a query, over the max margin", "middle", "axis");
    return `<svg viewBox="0 0 ${f.width} ${f.height}" role="img" aria-label="Histogram of margins">${svg}</svg>` +
      '<p class="legend"><span class="key trained">head</span><span class="key random">random weights, first draw</span></p>';
  };

  const spectra = (head, found) => {
    const curves = [
      ["trained", "W of the head", head.spectrum.values],
      ["svm", "W_mm of its selections", found.head.spectrum.values],
      ["shuffled", "W_mm, shuffled", found.shuffled[0].spectrum.values],
      ["untrained", "W_mm, untrained", found.untrained.length ? found.untrained[0].spectrum.values : []],
    ].filter((curve) => curve[2].length);
    const f = frame(520, 250, 44, 44), h = f.height - f.top - f.bottom, w = f.width - f.left - f.right;
    const decades = 4, last = Math.max(2, ...curves.map((curve) => curve[2].filter((v) => v > 10 ** -decades).length));
    const x = (k) => f.left + (w * Math.log(k + 1)) / Math.log(last), y = (v) => f.top + (h * -Math.log10(v)) / decades;
    let svg = "";
    for (let k = 0; k <= decades; k += 1) svg += line(f.left, y(10 ** -k), f.width - f.right, y(10 ** -k), "grid") + label(f.left - 6, y(10 ** -k) + 4, k === 0 ? "1" : `1e-${k}`, "end");
    for (const k of [1, 2, 5, 10, 20, 50, 100, 200, 500]) if (k <= last) svg += label(x(k - 1), f.top + h + 16, k);
    for (const [name, , values] of curves) {
      const points = values.map((v, k) => [k, v]).filter(([, v]) => v > 10 ** -decades);
      svg += `<polyline class="curve ${name}" points="${points.map(([k, v]) => `${x(k).toFixed(1)},${y(v).toFixed(1)}`).join(" ")}"/>`;
    }
    svg += label(f.left + w / 2, f.height - 8, "singular value, by rank", "middle", "axis");
    const tone = { trained: "--trained", svm: "--ink", shuffled: "--shuffled", untrained: "--untrained" };
    const legend = curves.map(([name, text]) => `<span class="key" style="--tone: var(${tone[name]})">${text}</span>`).join("");
    return `<svg viewBox="0 0 ${f.width} ${f.height}" role="img" aria-label="Singular values">${svg}</svg><p class="legend">${legend}</p>`;
  };

  // One number of all draws of a control: the median, and the range below it.
  const overDraws = (draws, read, form) => {
    const values = draws.map(read).filter((v) => v !== null && v !== undefined).sort((a, b) => a - b);
    if (!values.length) return "–";
    const half = values.length / 2, middle = (values[Math.ceil(half) - 1] + values[Math.floor(half)]) / 2;
    const range = values[0] === values[values.length - 1] ? "" : `<small>${form(values[0])} to ${form(values[values.length - 1])}</small>`;
    return form(middle) + range;
  };
  const whole = (value) => String(Math.round(value));
  const measures = [
    ["queries", "selections in the problem", (f) => f.queries, whole],
    ["max margin", "1 / N(W_mm): the largest normalized margin that any weights have on these selections", (f) => f.max_margin, number],
    ["efficiency", "smallest normalized margin of W over the max margin, W projected on the spans of the data; 1 is max-margin", (f) => f.efficiency_projected.smallest, number],
    ["as it is", "the same for W as it is, not projected", (f) => f.efficiency.smallest, number],
    [`quantile ${data.quantile}`, "normalized margin at this quantile of the queries over the max margin", (f) => f.efficiency_projected.quantile, number],
    ["median", "normalized margin of the median query over the max margin", (f) => f.efficiency_projected.median, number],
    ["cosine", "direction cosine of the projected W and W_mm", (f) => f.cosine_projected, number],
    ["as it is", "the same for W as it is, not projected", (f) => f.cosine, number],
    ["W in span", "norm of the projected W over that of W", (f) => f.in_span, number],
    ["rank W_mm", "effective rank of the max-margin solution", (f) => f.spectrum.effective_rank, number],
    ["support rows", "constraints with a positive multiplier", (f) => f.support_rows, whole],
    ["support queries", "queries that have such a constraint", (f) => f.support_queries, whole],
    ["agrees", "share of held-out queries on which W_mm selects what the head selects", (f) => f.agreement, percent],
    ["gap", "certified relative gap of the solution", (f) => f.gap, (v) => number(v, 1)],
  ];
  const controls = (found) => {
    const rows = [["Head", "trained", [found.head]], ["Random weights, same spectrum", "random", found.random_weights], ["Shuffled selections", "shuffled", found.shuffled], ["Untrained model", "untrained", found.untrained]];
    const body = rows.filter((row) => row[2].length).map(([name, tone, draws]) => {
      const solved = draws.filter((f) => f.solved);
      const count = draws.length > 1 ? `<small>${solved.length} of ${draws.length} draws solved</small>` : "";
      const cells = solved.length ? measures.map(([, , read, form]) => `<td>${overDraws(solved, read, form)}</td>`).join("") : `<td colspan="${measures.length}" class="words">${escapeText(draws[0].status)}</td>`;
      return `<tr><th scope="row"><span class="key ${tone}">${name}</span>${count}</th>${cells}</tr>`;
    }).join("");
    const head = measures.map(([title, help]) => `<th scope="col"><abbr title="${help}">${title}</abbr></th>`).join("");
    const words = measures.map(([title, help]) => `<dt>${title}</dt><dd>${help}</dd>`).join("");
    return `<div class="scroll"><table class="controls"><thead><tr><th scope="col">measured on</th>${head}</tr></thead><tbody>${body}</tbody></table></div>` +
      `<details><summary>What the columns say</summary><dl>${words}</dl></details>`;
  };

  const shownToken = (token) => escapeText(token).replace(/^[Ġ▁]/, "·");

  const attention = (example, query) => {
    const n = example.tokens.length, cell = Math.max(17, Math.min(25, Math.floor(820 / n))), left = 112, top = 96;
    const support = example.support.filter((entry) => entry[1] < n);
    let svg = `<rect class="pointer" x="${left}" y="${top + query * cell}" width="${n * cell}" height="${cell}"/>`;
    for (let q = 0; q < n; q += 1) {
      svg += `<text class="${q === query ? "here" : example.drawn[q] ? "" : "unsure"}" data-query="${q}" x="${left - 6}" y="${top + q * cell + cell / 2 + 4}" text-anchor="end">${shownToken(example.tokens[q]).slice(0, 16)}</text>`;
      svg += `<text class="${q === query ? "here" : ""}" transform="translate(${left + q * cell + cell / 2 + 3} ${top - 6}) rotate(-60)">${shownToken(example.tokens[q]).slice(0, 16)}</text>`;
      for (let t = 0; t < n; t += 1) {
        const value = example.attention[q][t] / 1000;
        if (value >= 0.005) svg += `<rect class="cell" x="${left + t * cell + 0.5}" y="${top + q * cell + 0.5}" width="${cell - 1}" height="${cell - 1}" fill-opacity="${(0.06 + 0.94 * value).toFixed(3)}"/>`;
      }
      if (example.drawn[q] && example.selected[q] >= 0) svg += `<circle class="chosen" cx="${left + example.selected[q] * cell + cell / 2}" cy="${top + q * cell + cell / 2}" r="${cell / 2 - 3}"/>`;
      svg += `<rect data-query="${q}" x="0" y="${top + q * cell}" width="${left + n * cell}" height="${cell}" fill="transparent"><title>query ${shownToken(example.tokens[q])}</title></rect>`;
    }
    for (const [q, t] of support) {
      const x = left + t * cell + cell / 2, y = top + q * cell + cell / 2;
      svg += `<path class="holds" d="M${x} ${y - 4.5}L${x + 4.5} ${y}L${x} ${y + 4.5}L${x - 4.5} ${y}Z" pointer-events="none"/>`;
    }
    svg += `<rect class="frame" x="${left}" y="${top}" width="${n * cell}" height="${n * cell}" pointer-events="none"/>`;
    const holds = new Set(support.filter((entry) => entry[0] === query).map((entry) => entry[1]));
    const strip = example.tokens.map((token, t) => {
      const classes = [t === query ? "query" : "", t === example.selected[query] ? "selected" : "", holds.has(t) ? "support" : ""].join(" ");
      return `<button type="button" class="${classes}" aria-pressed="${t === query}" data-query="${t}" style="background: rgb(var(--heat) / ${(0.5 * example.attention[query][t] / 1000).toFixed(3)})">${shownToken(token)}</button>`;
    }).join(" ");
    const width = left + n * cell + 70, height = top + n * cell + 8;
    return `<div class="strip">${strip}</div><div class="scroll"><svg class="heat" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img" aria-label="Attention of a sentence">${svg}</svg></div>`;
  };

  const story = (entry) => `<li><small>${(100 * entry.share).toFixed(2)}%</small><mark class="q">${shownToken(entry.query)}</mark> selects <mark class="s">${shownToken(entry.selected)}</mark>, hardest to tell from <mark class="t">${shownToken(entry.token)}</mark><br><small>positions ${entry.query_position} → ${entry.selected_position}, not ${entry.token_position}</small>${escapeText(data.texts[entry.sentence])}</li>`;

  const show = (name) => {
    const head = data.heads[name];
    document.querySelectorAll(".chosen[data-head]").forEach((e) => e.classList.remove("chosen"));
    document.querySelectorAll(`[data-head="${name}"]`).forEach((e) => e.classList.add("chosen"));
    const kinds = Object.entries(head.kinds).filter(([, share]) => share >= 0.005).sort((a, b) => b[1] - a[1]);
    const fact = (value, text) => `<div><b>${value}</b>${text}</div>`;
    const s = head.selectivity;
    let html = `<h2 tabindex="-1">${name}</h2><p class="quiet">${escapeText(head.outcome)}</p><div class="facts">` +
      fact(percent(s.confident), "of queries confident") + fact(number(s.top_mass, 2), "mean top mass") + fact(number(s.entropy), "entropy, nats") +
      (head.untrained_selectivity.length ? fact(overDraws(head.untrained_selectivity, (e) => e.entropy, number), "entropy, untrained") : "") +
      kinds.map(([kind, share]) => fact(percent(share), kind)).join("") +
      fact(s.tied, "ties") + fact(number(head.spectrum.effective_rank), "effective rank of W") +
      fact(percent(head.rule_agreement), `held out: ${escapeText(head.rule || "no rule")}`) + fact(head.attention_error.toExponential(0), "attention error") + "</div>";
    const told = head.support_tokens[0];
    if (data.asked && told) {
      const text = data.texts[told.sentence].replaceAll("'", "'\\''");
      const command = `attsvm why ${data.asked} '${text}' --head ${name} --query ${told.query_position} --html why_${name}.html`;
      html += `<p class="why">Why does it attend there? <code>${escapeText(command)}</code> writes <a href="why_${name}.html">why_${name}.html</a> beside this page.</p>`;
    }
    if (!head.comparisons.length) { detail.innerHTML = html; return; }
    html += '<div class="cards">';
    head.comparisons.forEach((found) => { html += `<div class="card wide"><h3>Head and controls, ${escapeText(found.head.norm)} norm</h3>${controls(found)}</div>`; });
    if (head.examples.length) html += `<div class="card wide"><h3>Attention, row = query · ○ selected · <span style="color: var(--random)">◆</span> support token · grey queries are not in the problem · click a query</h3><div class="tabs">${head.examples.map((e, k) => `<button type="button" data-example="${k}">Sentence ${e.sentence}</button>`).join("")}</div><div id="attention"></div></div>`;
    const first = head.comparisons[0];
    html += `<div class="card plot"><h3>Margins</h3>${histogram(first)}</div><div class="card plot"><h3>Spectrum</h3>${spectra(head, first)}</div>`;
    html += `<div class="card wide"><h3>Support tokens: the constraints with the largest multipliers (${first.head.support_rows} rows of ${first.head.support_queries} queries have one)</h3><ul class="stories">${head.support_tokens.map(story).join("")}</ul></div></div>`;
    detail.innerHTML = html;
    if (!head.examples.length) return;
    const place = document.getElementById("attention");
    const tabs = [...detail.querySelectorAll("[data-example]")];
    let example = head.examples[0];
    const draw = (query) => { place.innerHTML = attention(example, query); };
    const open = (k) => {
      example = head.examples[k];
      tabs.forEach((tab, j) => tab.setAttribute("aria-pressed", String(j === k)));
      draw(example.support.length ? example.support.reduce((a, b) => (b[2] > a[2] ? b : a))[0] : Math.max(0, example.drawn.indexOf(true)));
    };
    tabs.forEach((tab, k) => tab.addEventListener("click", () => open(k)));
    place.addEventListener("click", (event) => {
      const asked = event.target.closest("[data-query]");
      if (!asked) return;
      draw(Number(asked.dataset.query));
      if (asked.matches("button")) place.querySelector(`button[data-query="${asked.dataset.query}"]`).focus();
    });
    open(0);
  };

  // Boxes that scroll can be reached with the tab key, and only they.
  const markScrollingBoxes = () => document.querySelectorAll(".scroll, .stories").forEach((box) => {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });

  // The address of a head: #L3H7 opens it and scrolls to it, and a head that is chosen puts it there.
  const open = (name) => {
    show(name);
    markScrollingBoxes();
    detail.querySelector("h2").focus({ preventScroll: true });
    detail.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
  };
  const asked = () => decodeURIComponent(location.hash.slice(1));
  const choose = (event) => {
    const target = event.target.closest("[data-head]");
    if (!target || (event.type === "keydown" && event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    history.pushState(null, "", `#${target.dataset.head}`);
    open(target.dataset.head);
  };
  document.querySelectorAll("main tr[data-head], .mark[data-head]").forEach((element) => {
    element.addEventListener("click", choose);
    element.addEventListener("keydown", choose);
  });
  addEventListener("hashchange", () => { if (data.heads[asked()]) open(asked()); });

  // Search and filters: every word must occur in the name, the kind or the outcome of a head.
  const filter = {};
  for (const name of ["find", "kind", "layer", "least"]) filter[name] = document.getElementById(name);
  const count = document.getElementById("count");
  const narrow = () => {
    const words = filter.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    let shown = 0;
    rows.forEach((row) => {
      const head = data.heads[row.dataset.head];
      const outcome = head.outcome === "solved" ? "solved" : `unsolved ${head.outcome}`;
      const text = [head.name, row.dataset.selects, outcome, head.rule].join(" ").toLowerCase();
      const fits = words.every((word) => text.split(" ").some((part) => part.startsWith(word)) || text.includes(` ${word}`)) &&
        (!filter.kind.value || filter.kind.value === row.dataset.selects) &&
        (!filter.layer.value || Number(filter.layer.value) === head.layer) &&
        100 * Number(row.dataset.confident) >= Number(filter.least.value || 0);
      row.hidden = !fits;
      shown += fits;
      document.querySelectorAll(`.mark[data-head="${head.name}"]`).forEach((mark) => mark.classList.toggle("hidden", !fits));
    });
    count.textContent = `${shown} of ${rows.length} heads shown`;
    markScrollingBoxes();
  };
  Object.values(filter).forEach((field) => field.addEventListener("input", narrow));
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  narrow(); // a browser may have kept what was typed before

  const first = table.tBodies[0].rows[0];
  if (data.heads[asked()]) open(asked());
  else if (first) show(first.dataset.head);
  markScrollingBoxes();
  addEventListener("resize", markScrollingBoxes);
})();
