"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent).heat;
  if (!data) {
    if (byId("steps")) byId("steps").hidden = true;
    return;
  }
  heatmap(data, data.compute ? stepBars(data) : () => {});

  // ---- one bar a step, or one a rank in a chosen step
  function stepBars({ ranks, columns, metrics, compute, waiting, named }) {
    const box = byId("perstep-bars"), select = byId("perstep-of"), m = columns.length;
    const of = (key) => metrics.find((item) => item.key === key)?.values ?? null;
    const whole = of("duration_ms"), exposed = of("exposed_comm_ms"), idle = of("idle_ms"), input = of("input_ms");
    if (!whole || !exposed || !idle) return () => {};
    const ms = (v) => (v / 100).toFixed(v >= 100000 ? 0 : v >= 1000 ? 1 : 2) + " ms";
    const parts = (i) => {
      const bare = exposed[i] ?? 0, waits = waiting?.[i] ?? null;
      const comm = waits === null ? [["comm", "Waiting and transfer", bare]]
        : [["waiting", "Waiting for peers", waits], ["transfer", "Transfer", bare - waits]];
      const rest = Math.max(0, whole[i] - (compute[i] ?? 0) - bare - (idle[i] ?? 0));
      const fetch = Math.min(input?.[i] ?? 0, idle[i] ?? 0), host = (idle[i] ?? 0) - fetch;
      return [["compute", "Compute", compute[i] ?? 0], ...comm, ["copy", "Copies and rest", rest],
        ["input", "Idle: input", fetch], ["host", "Idle: host", host]].filter((part) => part[2] > 0);
    };
    const svg = (name, attributes) => {
      const node = document.createElementNS(document.querySelector("svg").namespaceURI, name);
      for (const key in attributes) node.setAttribute(key, attributes[key]);
      return node;
    };
    const bar = (label, i, scale, height, mark) => {
      const row = document.createElement("div"), who = document.createElement("span"), length = document.createElement("span");
      row.className = "bar";
      who.className = mark ? "who named" : "who";
      who.textContent = (mark ? "▲ " : "") + label;
      length.className = "len";
      if (whole[i] === null) {
        length.textContent = "–";
        row.append(who, document.createElement("span"), length);
        return row;
      }
      const shown = parts(i);
      const spoken = shown.map(([, name, v]) => `${name} ${ms(v)}`).join(", ");
      const image = svg("svg", { role: "img", "aria-label": `${label}: ${ms(whole[i])}: ${spoken}`, width: "100%", height });
      let start = 0;
      for (const [key, name, v] of shown) {
        const group = svg("g", {}), title = svg("title", {}), place = { x: start + "%", width: (v / scale) * 100 + "%", height: "100%" };
        title.textContent = `${name}: ${ms(v)}`;
        group.append(title, svg("rect", { class: "seg-" + key, ...place }));
        if (["waiting", "copy", "input", "host"].includes(key)) group.append(svg("rect", { class: "pat-" + key, ...place }));
        image.append(group);
        start += (v / scale) * 100;
      }
      length.textContent = ms(whole[i]);
      row.append(who, image, length);
      return row;
    };
    const draw = () => {
      const [kind, index] = select.value.split(" ").map((v, i) => (i ? Number(v) : v));
      const cells = kind === "rank" ? columns.map((_, j) => index * m + j) : ranks.map((_, i) => i * m + index);
      const known = cells.filter((i) => whole[i] !== null);
      // One length for all ranks and steps, so that two choices can be compared by eye.
      const scale = Math.max(1, ...known.map((i) => Math.max(whole[i], parts(i).reduce((sum, part) => sum + part[2], 0))), largest);
      const many = cells.length > 24;
      box.classList.toggle("many", many);
      box.replaceChildren(...cells.map((i, at) => (kind === "rank"
        ? bar("step " + columns[at].step, i, scale, many ? 14 : 20, false)
        : bar("rank " + ranks[at], i, scale, many ? 14 : 20, named.includes(ranks[at])))));
    };
    const sorted = whole.filter((v) => v !== null).sort((a, b) => a - b);
    const largest = sorted[Math.min(sorted.length - 1, Math.floor(0.998 * sorted.length))] ?? 1;
    const group = (label, options) => {
      const found = Object.assign(document.createElement("optgroup"), { label });
      found.append(...options.map(([value, text]) => Object.assign(document.createElement("option"), { value, textContent: text })));
      select.append(found);
    };
    group("All steps of", ranks.map((rank, i) => ["rank " + i, `rank ${rank}, all steps`]));
    group("All ranks in", columns.map((column, j) => ["step " + j, `step ${column.step}, all ranks` + (column.window === columns[0].window ? "" : ` (${column.window})`)]));
    select.value = "rank " + Math.max(0, ranks.indexOf(named[0]));
    select.addEventListener("change", draw);
    byId("perstep").hidden = false;
    draw();
    return (index) => { select.value = "rank " + index; draw(); };
  }

  // ---- heatmap
  function heatmap({ ranks, columns, merged, metrics, compute, waiting, named, hosts }, chosen) {
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
    const luminance = (c) => [0.2126, 0.7152, 0.0722].reduce((sum, part, i) => {
      const x = c[i] / 255;
      return sum + part * (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    }, 0);
    const shade = (v) => Math.max(0, Math.min(255, Math.round(((v - domain[0]) / (domain[1] - domain[0])) * 255)));
    const larger = (a, b) => (a === null ? b : b === null ? a : b > a ? b : a);
    // Ranks of the verdict that follow each other have one mark; of more marks there is no room to say whose they are.
    const MOST_MARKS = 16;
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
      colours = palette();
      const none = variable("--none"), dim = variable("--dim"), font = variable("--sans");
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
      context.fillStyle = variable("--accent");
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
      context.fillStyle = variable("--ink");
      for (let j = 1; j < m; j++) // a line where another window begins
        if (columns[j].window !== columns[j - 1].window) {
          if (flip) context.fillRect(left, top + j * row - 1, places * cell, 1.5);
          else context.fillRect(left + j * cell - 1, 0, 1.5, n * row);
        }
      if (cursor !== null) {
        const r = flip ? cursor % m : Math.floor(cursor / m), c = Math.floor((flip ? Math.floor(cursor / m) : cursor % m) / per);
        context.strokeStyle = variable("--ink");
        context.lineWidth = 2;
        context.strokeRect(left + c * cell, top + r * row, Math.max(cell, 3), Math.max(row, 3));
      }
      if (hosts) drawHosts(width, dpr);
      const scale = byId("heat-scale").getContext("2d");
      colours.forEach((c, i) => { scale.fillStyle = css(c); scale.fillRect((i / 256) * 120, 0, 1, 10); });
    }

    // Columns are hosts, rows the places on them: a slow host is a column, a slow switch or slot of all hosts a row.
    const grid = byId("hosts-canvas");
    byId("hosts").hidden = !hosts;
    let layout = null;
    const mean = (i) => {
      const known = metric.values.slice(i * m, (i + 1) * m).filter((v) => v !== null);
      return known.length ? known.reduce((sum, v) => sum + v, 0) / known.length : null;
    };
    function drawHosts(width, dpr) {
      const { names, each } = hosts, row = each <= 8 ? 16 : 10, left = 82;
      const per = Math.max(1, Math.ceil(names.length / (width - left))), places = Math.ceil(names.length / per);
      const cell = Math.min((width - left) / places, 40), gap = cell > 6 ? 1 : 0, height = row * each + 44;
      layout = { left, row, cell, per };
      grid.style.height = height + "px";
      grid.width = Math.round(width * dpr);
      grid.height = Math.round(height * dpr);
      const pen = grid.getContext("2d");
      pen.setTransform(dpr, 0, 0, dpr, 0, 0);
      for (let place = 0; place < places; place++)
        for (let r = 0; r < each; r++) {
          let v = null;
          for (let h = place * per; h < Math.min(names.length, (place + 1) * per); h++) v = larger(v, mean(h * each + r));
          pen.fillStyle = v === null ? variable("--none") : css(colours[shade(v)]);
          pen.fillRect(left + place * cell, r * row, cell - gap + (gap ? 0 : 0.5), row - 1);
        }
      pen.fillStyle = variable("--dim");
      pen.font = `12px ${variable("--sans")}`;
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      const late = ranks.map((rank) => named.includes(rank)), bold = `bold ${pen.font}`, plain = pen.font;
      const count = (first, step, of) => Array.from({ length: of }, (_, k) => late[first + k * step]).filter(Boolean).length;
      for (let r = 0; r < each; r += Math.ceil(14 / row)) {
        const whole = 2 * count(r, each, names.length) > names.length;
        pen.fillStyle = variable(whole ? "--accent" : "--dim");
        pen.font = whole ? bold : plain;
        pen.fillText((whole ? "▲ " : "") + "place " + r, left - 8, r * row + row / 2);
      }
      pen.fillStyle = variable("--dim");
      pen.font = plain;
      pen.textAlign = "center";
      const longest = Math.max(...names.map((name) => pen.measureText(name).width)) + 12;
      for (let h = 0; h < names.length; h += Math.max(1, Math.ceil(longest / (cell / per)))) {
        const x = Math.max(longest / 2, left + (Math.floor(h / per) + 0.5) * cell);
        if (x + longest / 2 <= width + 12) pen.fillText(names[h], x, row * each + 12);
      }
      pen.fillStyle = variable("--accent");
      pen.font = bold;
      let free = 0;
      names.forEach((name, h) => {
        const label = "▲ " + name, half = pen.measureText(label).width / 2, own = count(h * each, 1, each);
        const x = Math.max(half, Math.min(left + (Math.floor(h / per) + 0.5) * cell, width - half));
        if (x - half < free || !(2 * own > each || (own && named.length <= MOST_MARKS))) return;
        pen.fillText(label, x, row * each + 30);
        free = x + half + 8;
      });
      byId("hosts-note").textContent = `${metric.label} of each rank, the mean over the steps. A column is a host, a row the ranks with the same place on each host.`;
    }
    const hostAt = (event) => {
      const box = grid.getBoundingClientRect(), { left, row, cell, per } = layout;
      const place = Math.floor((event.clientX - box.left - left) / cell), r = Math.floor((event.clientY - box.top) / row);
      if (place < 0 || place * per >= hosts.names.length || r < 0 || r >= hosts.each) return null;
      let best = place * per * hosts.each + r;
      for (let h = place * per + 1; h < Math.min(hosts.names.length, (place + 1) * per); h++)
        if ((mean(h * hosts.each + r) ?? -Infinity) > (mean(best) ?? -Infinity)) best = h * hosts.each + r;
      return best;
    };
    grid.addEventListener("pointermove", (event) => {
      const i = hostAt(event);
      if (i === null) return;
      read.textContent = `host ${hosts.names[Math.floor(i / hosts.each)]}, place ${i % hosts.each}: rank ${ranks[i]}, `
        + `${metric.label.toLowerCase()} ${format(mean(i))} ms, the mean over the steps`;
    });
    grid.addEventListener("click", (event) => { const i = hostAt(event); if (i !== null) chosen(i); });

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
})();
