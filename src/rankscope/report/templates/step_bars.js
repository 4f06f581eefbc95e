// ---- one bar a step, or one a rank in a chosen step. Returns a function that shows the steps of a rank, by its place.
function stepBars({ ranks, columns, metrics, compute, waiting, named }) {
  const byId = (id) => document.getElementById(id);
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
