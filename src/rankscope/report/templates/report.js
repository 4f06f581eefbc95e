
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // ---- tables: sort, filter, copy
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === "") return 1; // unknown values go last, whichever way
    if (b === "") return -1;
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  const sortBy = (header) => {
    const table = header.closest("table"), body = table.tBodies[0];
    const index = [...header.parentNode.children].indexOf(header);
    const now = header.getAttribute("aria-sort");
    const up = now === "none" ? !header.classList.contains("n") || index === 0 : now === "descending";
    all("thead th", table).forEach((th) => th.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [row.cells[index].dataset.v, row]);
    rows.sort(([a], [b]) => (a === "" || b === "" || up ? compare(a, b) : compare(b, a)));
    body.append(...rows.map(([, row]) => row));
  };
  all("thead button").forEach((button) => button.addEventListener("click", () => sortBy(button.closest("th"))));

  all("[data-filter]").forEach((input) => {
    const body = byId("table-" + input.dataset.filter).tBodies[0];
    const count = document.querySelector(`[data-count="${input.dataset.filter}"]`);
    const texts = new Map([...body.rows].map((row) =>
      [row, [...row.cells].map((cell) => cell.textContent + " " + (cell.title || "")).join(" ").toLowerCase()]));
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = shown === texts.size ? `${shown} rows` : `${shown} of ${texts.size} rows`;
    });
  });

  const toast = (text) => {
    const box = byId("toast");
    box.textContent = text;
    box.classList.add("on");
    setTimeout(() => box.classList.remove("on"), 1600);
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea"); // file:// without clipboard permission
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    toast("Copied as Markdown");
  };
  const plain = (node) => node.textContent.trim().replace(/\s+/g, " ").replace(/([\\`*_[\]<>|~])/g, "\\$1");
  all("[data-copy-table]").forEach((button) => button.addEventListener("click", () => {
    const table = byId("table-" + button.dataset.copyTable);
    const heads = all("thead th", table).map((th) => {
      const unit = th.querySelector("small");
      const label = plain(th.querySelector("button").firstChild);
      return unit ? `${label} (${plain(unit)})` : label;
    });
    const rule = all("thead th", table).map((th) => (th.classList.contains("n") ? "---:" : "---"));
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(plain));
    copy([heads, rule, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n") + "\n");
  }));
  all("[data-copy-card]").forEach((button) => button.addEventListener("click", () => {
    const card = byId(button.dataset.copyCard), lines = [];
    const cost = card.querySelector(".cost");
    lines.push(`### ${plain(card.querySelector("h3")).replace(/^#/, "")}${cost ? ` (${plain(cost)})` : ""}`, "");
    lines.push(plain(card.querySelector(".meta")), "");
    for (const h4 of all("h4", card)) {
      lines.push(`**${plain(h4)}**`, "");
      const next = h4.nextElementSibling;
      lines.push(...(next.tagName === "UL" ? all("li", next).map((li) => `- ${plain(li)}`) : [plain(next)]), "");
    }
    copy(lines.join("\n"));
  }));

  // ---- a link into a folded part opens it
  const unfold = () => {
    const target = location.hash.length > 1 && byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => all("details").forEach((d) => { if (!["hta", "definitions"].includes(d.id)) d.open = true; }));

  // ---- heatmap
  const data = JSON.parse(byId("data").textContent).heat;
  if (data) heatmap(data);
  else if (byId("steps")) byId("steps").hidden = true;
  unfold();

  function heatmap({ ranks, columns, merged, metrics, compute }) {
    const canvas = byId("heat-canvas"), read = byId("heat-read"), fieldset = document.querySelector(".segmented");
    const context = canvas.getContext("2d");
    const n = ranks.length, m = columns.length;
    let metric = metrics[0], cursor = null, geometry = null, colours = null, domain = [0, 1];
    const durations = metrics.find((item) => item.key === "duration_ms")?.values.filter((v) => v !== null) ?? [];
    const tenth = Math.max(1, (durations.sort((a, b) => a - b)[durations.length >> 1] ?? 0) / 10);
    const format = (v) => (v === null ? "–" : (v / 100).toFixed(Math.abs(v) >= 100000 ? 0 : Math.abs(v) >= 1000 ? 1 : 2));

    metrics.forEach((item, index) => {
      const label = document.createElement("label"), input = document.createElement("input");
      label.title = item.hover;
      Object.assign(input, { type: "radio", name: "metric", checked: index === 0 });
      label.append(input, item.label);
      input.addEventListener("change", () => { metric = item; choose(); });
      fieldset.append(label);
    });

    const hex = (name) => {
      const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
    };
    const mix = (a, b, t) => a.map((x, i) => Math.round(x + (b[i] - x) * t));
    const palette = () => {
      const stops = (signed() ? ["--div0", "--div1", "--div2"] : ["--seq0", "--seq1", "--seq2"]).map(hex);
      return Array.from({ length: 256 }, (_, i) => {
        const t = i / 127.5;
        return t <= 1 ? mix(stops[0], stops[1], t) : mix(stops[1], stops[2], t - 1);
      });
    };
    const signed = () => metric.key === "lateness_ms";
    const css = (rgb) => `rgb(${rgb[0]} ${rgb[1]} ${rgb[2]})`;
    const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

    function choose() {
      const known = metric.values.filter((v) => v !== null).sort((a, b) => a - b);
      const at = (q) => known[Math.min(known.length - 1, Math.floor(q * known.length))] ?? 0;
      // Full colour takes at least a tenth of a step: noise must not look like trouble.
      if (signed()) {
        const edge = Math.max(Math.abs(at(0.002)), Math.abs(at(0.998)), tenth);
        domain = [-edge, edge];
      } else {
        const low = metric.key === "duration_ms" ? at(0) : 0;
        domain = [low, Math.max(at(0.998), low + tenth)];
      }
      let worst = -1;
      metric.values.forEach((v, i) => { if (v !== null && (worst < 0 || v > metric.values[worst])) worst = i; });
      const parts = [metric.hover];
      if (worst >= 0) parts.push(`Largest: ${where(worst)}, ${format(metric.values[worst])} ms.`);
      if (merged > 1) parts.push(`${merged} steps share a column; the value farthest from zero is shown.`);
      byId("heat-note").textContent = parts.join(" ");
      byId("heat-low").textContent = format(domain[0]) + " ms" + (signed() ? " (early)" : "");
      byId("heat-high").textContent = format(domain[1]) + " ms" + (signed() ? " (late)" : "");
      if (cursor !== null) tell();
      draw();
    }
    const where = (i) => `rank ${ranks[Math.floor(i / m)]}, step ${columns[i % m].step}`;
    const tell = () => {
      const { window } = columns[cursor % m];
      read.textContent = `${where(cursor)} (${window}): ${metric.label.toLowerCase()} ${format(metric.values[cursor])} ms`;
      const of = (key) => metrics.find((item) => item.key === key)?.values[cursor] ?? null;
      const parts = [compute?.[cursor] ?? null, of("exposed_comm_ms"), of("idle_ms")], whole = of("duration_ms");
      if (whole === null || parts.includes(null)) return;
      const rest = Math.max(0, whole - parts[0] - parts[1] - parts[2]);
      const names = ["compute", "exposed communication", "idle", "copies and rest"];
      const split = [...parts, rest].map((value, i) => `${names[i]} ${format(value)}`).join(", ");
      read.append(Object.assign(document.createElement("small"), { textContent: `Step of ${format(whole)} ms: ${split}` }));
    };

    function draw() {
      const dpr = devicePixelRatio || 1, width = canvas.clientWidth || 600;
      const row = n <= 8 ? 30 : n <= 24 ? 18 : n <= 80 ? 9 : n <= 200 ? 4 : n <= 400 ? 2 : 1;
      const left = 24 + 7 * String(ranks[n - 1]).length, bottom = 26, height = row * n + bottom + 4;
      canvas.style.height = height + "px";
      canvas.width = Math.round(width * dpr);
      canvas.height = Math.round(height * dpr);
      context.setTransform(dpr, 0, 0, dpr, 0, 0);
      const cell = Math.min((width - left) / m, 150), gap = cell > 6 && row > 4 ? 1 : 0;
      geometry = { left, row, cell };
      colours = palette();
      const none = variable("--none"), dim = variable("--dim"), font = variable("--sans");
      const text = cell >= 40 && row >= 18;
      for (let i = 0; i < n; i++) for (let j = 0; j < m; j++) {
        const v = metric.values[i * m + j];
        const t = v === null ? 0 : Math.max(0, Math.min(255, Math.round(((v - domain[0]) / (domain[1] - domain[0])) * 255)));
        context.fillStyle = v === null ? none : css(colours[t]);
        const x = left + j * cell, y = i * row;
        context.fillRect(x, y, cell - gap + (gap ? 0 : 0.5), row - gap);
        if (!text) continue;
        const c = colours[t], light = v === null || c[0] * 0.3 + c[1] * 0.59 + c[2] * 0.11 > 128;
        context.fillStyle = v === null ? dim : light ? "#15171b" : "#ffffff";
        context.font = `12px ${font}`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText(format(v), x + (cell - gap) / 2, y + row / 2);
      }
      context.fillStyle = dim;
      context.font = `12px ${font}`;
      context.textBaseline = "middle";
      context.textAlign = "right";
      const every = Math.max(1, Math.ceil(14 / row));
      for (let i = 0; i < n; i += every) context.fillText(ranks[i], left - 8, i * row + row / 2);
      context.textAlign = "center";
      const longest = Math.max(...columns.map((c) => c.step.length)) * 7 + 10;
      const skip = Math.max(1, Math.ceil(longest / cell));
      for (let j = 0; j < m; j += skip) context.fillText(columns[j].step, left + (j + 0.5) * cell, n * row + 12);
      context.textAlign = "left";
      context.fillStyle = variable("--ink");
      for (let j = 1; j < m; j++) // a line where another window begins
        if (columns[j].window !== columns[j - 1].window) context.fillRect(left + j * cell - 1, 0, 1.5, n * row);
      if (cursor !== null) {
        context.strokeStyle = variable("--ink");
        context.lineWidth = 2;
        context.strokeRect(left + (cursor % m) * cell, Math.floor(cursor / m) * row, cell, Math.max(row, 3));
      }
      const scale = byId("heat-scale").getContext("2d");
      colours.forEach((c, i) => { scale.fillStyle = css(c); scale.fillRect((i / 256) * 120, 0, 1, 10); });
    }

    const cellAt = (event) => {
      const box = canvas.getBoundingClientRect(), { left, row, cell } = geometry;
      const j = Math.floor((event.clientX - box.left - left) / cell), i = Math.floor((event.clientY - box.top) / row);
      return i >= 0 && i < n && j >= 0 && j < m ? i * m + j : null;
    };
    let waiting = false;
    const move = (index) => {
      if (index === null || index === cursor) return;
      cursor = index;
      tell();
      if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
    };
    canvas.addEventListener("pointermove", (event) => move(cellAt(event)));
    canvas.addEventListener("click", (event) => move(cellAt(event)));
    canvas.addEventListener("dblclick", () => { if (cursor !== null) location.hash = `rank-${ranks[Math.floor(cursor / m)]}`; });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Enter" && cursor !== null) location.hash = `rank-${ranks[Math.floor(cursor / m)]}`;
      if (!steps) return;
      event.preventDefault();
      if (cursor === null) return move(0);
      const i = Math.floor(cursor / m) + steps[0], j = (cursor % m) + steps[1];
      if (i >= 0 && i < n && j >= 0 && j < m) move(i * m + j);
    });
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    choose();
  }
})();
