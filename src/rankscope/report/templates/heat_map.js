// ---- map of ranks by steps. `chosen` is called with the place of a rank that is clicked on.
const MOST_MARKS = 16; // of more marks there is no room to say whose they are

function heatMap(data, chosen) {
  const { ranks, columns, merged, metrics, compute, waiting, named, hosts } = data;
  const byId = (id) => document.getElementById(id);
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
    input.addEventListener("change", () => { metric = item; choose(); link(); });
    fieldset.append(label);
  });

  const signed = () => metric.key === "lateness_ms";

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
    const floor = Math.abs(domain[1] - (signed() ? 0 : domain[0]) - tenth) < 1 ? ", a tenth of a step" : "";
    byId("heat-high").textContent = format(domain[1]) + " ms" + (signed() ? " (late" + floor + ")" : floor);
    if (cursor !== null) tell();
    draw();
  }
  // What is looked at is in the address, so that a link shows the same.
  function link() {
    const state = new URLSearchParams({ value: metric.key });
    if (cursor !== null) state.set("rank", ranks[Math.floor(cursor / m)]), state.set("step", columns[cursor % m].step);
    history.replaceState(null, "", "#steps?" + state);
  }
  function follow() {
    if (!location.hash.startsWith("#steps?")) return false;
    const state = new URLSearchParams(location.hash.slice("#steps?".length));
    const index = Math.max(0, metrics.findIndex((item) => item.key === state.get("value")));
    const i = ranks.indexOf(Number(state.get("rank") ?? NaN)), j = columns.findIndex((c) => c.step === state.get("step"));
    if (i >= 0 && j >= 0) cursor = i * m + j;
    metric = metrics[index];
    fieldset.querySelectorAll("input")[index].checked = true;
    choose();
    byId("steps").scrollIntoView();
    return true;
  }
  const where = (i) => `rank ${ranks[Math.floor(i / m)]}, step ${columns[i % m].step}`;
  const tell = () => {
    const { window } = columns[cursor % m];
    const which = columns.some((column) => column.window !== window) ? ` (${window})` : "";
    read.textContent = `${where(cursor)}${which}: ${metric.label.toLowerCase()} ${format(metric.values[cursor])} ms`;
    const of = (key) => metrics.find((item) => item.key === key)?.values[cursor] ?? null;
    const parts = [compute?.[cursor] ?? null, of("exposed_comm_ms"), of("idle_ms")], whole = of("duration_ms");
    if (whole === null || parts.includes(null)) return;
    const rest = Math.max(0, whole - parts[0] - parts[1] - parts[2]);
    const input = of("input_ms"), ofIdle = input === null ? "" : ` (input ${format(input)})`;
    const waits = waiting?.[cursor] ?? null, ofComm = waits === null ? "" : ` (waiting for peers ${format(waits)})`;
    const named = [["compute", parts[0]], ["exposed communication", parts[1], ofComm], ["idle", parts[2], ofIdle], ["copies and rest", rest]];
    const split = named.map(([name, value, more = ""]) => `${name} ${format(value)}${more}`).join(", ");
    read.append(Object.assign(document.createElement("small"), { textContent: `Step of ${format(whole)} ms: ${split}` }));
  };

  // Few ranks are rows; many are columns, of which several share a pixel: the largest value is shown, so none vanishes.
  const flip = n > 8;
  const rows = flip ? m : n, across = flip ? n : m;
  const at = (r, c) => (flip ? c * m + r : r * m + c);
  const shade = (v) => Math.max(0, Math.min(255, Math.round(((v - domain[0]) / (domain[1] - domain[0])) * 255)));
  // Ranks of the verdict that follow each other have one mark.
  const runs = [];
  for (const i of named.map((rank) => ranks.indexOf(rank)).filter((index) => index >= 0).sort((a, b) => a - b)) {
    if (runs.length && runs.at(-1)[1] === i - 1) runs.at(-1)[1] = i;
    else runs.push([i, i]);
  }
  // Numbers below the map are round, or those of the first rank of a host.
  const spacing = (least) => {
    const bases = hosts ? [1, 2, 4].filter((part) => hosts.each % part === 0) : [1, 2, 5];
    for (let size = 1; ; size *= hosts ? (size === 1 ? hosts.each : 2) : 10) {
      const found = (hosts && size > 1 ? [1] : bases).map((part) => part * size).find((step) => step >= least);
      if (found) return found;
    }
  };

  function draw() {
    const dpr = devicePixelRatio || 1, width = canvas.clientWidth || 600;
    const row = rows <= 8 ? 30 : rows <= 24 ? 18 : rows <= 80 ? 9 : rows <= 200 ? 4 : rows <= 400 ? 2 : 1;
    const heads = flip ? columns.map((c) => c.step) : ranks.map(String);
    const feet = flip ? ranks.map(String) : columns.map((c) => c.step);
    const strip = flip ? 14 : 0, top = strip ? strip + 4 : 0; // the worst of each rank over all steps, never hidden
    const left = (named.length && !flip ? 40 : strip ? 44 : 24) + 7 * Math.max(...heads.map((text) => text.length));
    const bottom = flip && named.length ? 44 : 26, height = top + row * rows + bottom + 4;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * dpr);
    canvas.height = Math.round(height * dpr);
    context.setTransform(dpr, 0, 0, dpr, 0, 0);
    const per = Math.max(1, Math.ceil(across / Math.max(width - left, 1))), places = Math.ceil(across / per);
    const cell = Math.min((width - left) / places, flip ? 40 : 150), gap = cell > 6 && row > 4 ? 1 : 0;
    geometry = { left, row, cell, per, top };
    colours = palette(signed());
    const none = ofStyle("--none"), dim = ofStyle("--dim"), font = ofStyle("--sans");
    const text = cell >= 40 && row >= 18;
    const paint = (v, x, y, wide, high) => {
      context.fillStyle = v === null ? none : css(colours[shade(v)]);
      context.fillRect(x, y, wide, high);
    };
    for (let c = 0; c < places; c++) {
      const x = left + c * cell, wide = cell - gap + (gap ? 0 : 0.5);
      let most = null;
      for (let r = 0; r < rows; r++) {
        let v = null;
        for (let k = c * per; k < Math.min(across, (c + 1) * per); k++) v = larger(v, metric.values[at(r, k)]);
        most = larger(most, v);
        paint(v, x, top + r * row, wide, row - gap);
        if (!text) continue;
        const light = v === null || luminance(colours[shade(v)]) > 0.179;
        context.fillStyle = v === null ? dim : light ? "#15171b" : "#ffffff";
        context.font = `12px ${font}`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillText(format(v), x + (cell - gap) / 2, top + r * row + row / 2);
      }
      if (strip) paint(most, x, 0, wide, strip);
    }
    context.fillStyle = dim;
    context.font = `12px ${font}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    if (strip) context.fillText("worst", left - 8, strip / 2);
    const every = Math.max(1, Math.ceil(14 / row));
    const marked = flip ? [] : runs.flatMap(([first, last]) => Array.from({ length: last + 1 - first }, (_, k) => first + k));
    for (let r = 0; r < rows; r += every) // the verdict's ranks are always named, and their neighbours make room
      if (flip || !marked.some((other) => Math.abs(other - r) * row < 14)) context.fillText(heads[r], left - 8, top + Math.max(7, r * row + row / 2));
    context.textAlign = "center";
    const longest = Math.max(...feet.map((foot) => foot.length)) * 7 + 10;
    const skip = flip ? spacing(longest / (cell / per)) : Math.max(1, Math.ceil(longest / (cell / per)));
    for (let c = 0; c < across; c += skip) {
      const x = left + (Math.floor(c / per) + 0.5) * cell;
      if (x + longest / 2 <= width + 5) context.fillText(feet[c], x, top + rows * row + 12);
    }
    context.fillStyle = ofStyle("--accent");
    context.font = `bold 12px ${font}`;
    let free = 0; // of the line of marks, from here on
    for (const [first, last] of flip ? runs : []) {
      const from = left + Math.floor(first / per) * cell, until = left + (Math.floor(last / per) + 1) * cell;
      context.fillRect(from, top + rows * row + 1, Math.max(until - from - gap, 2), 3);
      const label = "▲ " + (first === last ? ranks[first] : `${ranks[first]}-${ranks[last]}`), half = context.measureText(label).width / 2;
      const middle = Math.max(half, Math.min((from + until) / 2, width - half));
      if (middle - half < free || runs.length > MOST_MARKS) continue;
      context.fillText(label, middle, top + rows * row + 30);
      free = middle + half + 8;
    }
    context.textAlign = "right";
    for (const i of marked) context.fillText("▲ " + ranks[i], left - 8, Math.max(7, i * row + row / 2));
    context.textAlign = "left";
    context.fillStyle = ofStyle("--ink");
    for (let j = 1; j < m; j++) // a line where another window begins
      if (columns[j].window !== columns[j - 1].window) {
        if (flip) context.fillRect(left, top + j * row - 1, places * cell, 1.5);
        else context.fillRect(left + j * cell - 1, 0, 1.5, n * row);
      }
    if (cursor !== null) {
      const r = flip ? cursor % m : Math.floor(cursor / m), c = Math.floor((flip ? Math.floor(cursor / m) : cursor % m) / per);
      context.strokeStyle = ofStyle("--ink");
      context.lineWidth = 2;
      context.strokeRect(left + c * cell, top + r * row, Math.max(cell, 3), Math.max(row, 3));
    }
    drawHosts(width, dpr);
    const scale = byId("heat-scale").getContext("2d");
    colours.forEach((c, i) => { scale.fillStyle = css(c); scale.fillRect((i / 256) * 120, 0, 1, 10); });
  }

  const look = {
    read, format, metric: () => metric,
    colour: (v) => (v === null ? ofStyle("--none") : css(colours[shade(v)])),
  };
  const drawHosts = hostMap(data, look, chosen);

  const cellAt = (event) => {
    const box = canvas.getBoundingClientRect(), { left, row, cell, per, top } = geometry;
    const place = Math.floor((event.clientX - box.left - left) / cell);
    const r = Math.max(0, Math.floor((event.clientY - box.top - top) / row));
    if (place < 0 || place * per >= across || r >= rows) return null;
    let best = at(r, place * per);
    for (let c = place * per + 1; c < Math.min(across, (place + 1) * per); c++) // of those that share a pixel
      if (larger(metric.values[best], metric.values[at(r, c)]) !== metric.values[best]) best = at(r, c);
    return best;
  };
  let pending = false;
  const move = (index) => {
    if (index === null || index === cursor) return;
    cursor = index;
    tell();
    link();
    if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); }
  };
  canvas.addEventListener("pointermove", (event) => move(cellAt(event)));
  canvas.addEventListener("click", (event) => {
    move(cellAt(event));
    if (cursor !== null) chosen(Math.floor(cursor / m));
  });
  canvas.addEventListener("dblclick", () => { if (cursor !== null) location.hash = `rank-${ranks[Math.floor(cursor / m)]}`; });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter" && cursor !== null) location.hash = `rank-${ranks[Math.floor(cursor / m)]}`;
    if (!steps) return;
    event.preventDefault();
    if (cursor === null) return move(0);
    const [down, right] = flip ? [steps[1], steps[0]] : steps;
    const i = Math.floor(cursor / m) + down, j = (cursor % m) + right;
    if (i >= 0 && i < n && j >= 0 && j < m) move(i * m + j);
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("hashchange", follow);
  if (!follow()) choose();
}
