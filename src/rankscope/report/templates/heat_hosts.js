// ---- map of hosts: columns are hosts, rows the places on them. A slow host is a column, a slow switch or slot of all
// hosts a row. `look` tells the chosen value, as the map of ranks by steps shows it. Returns a function that draws.
function hostMap({ ranks, columns, named, hosts }, look, chosen) {
  const grid = document.getElementById("hosts-canvas"), m = columns.length;
  document.getElementById("hosts").hidden = !hosts;
  if (!hosts) return () => {};
  let layout = null;
  const mean = (i) => {
    const known = look.metric().values.slice(i * m, (i + 1) * m).filter((v) => v !== null);
    return known.length ? known.reduce((sum, v) => sum + v, 0) / known.length : null;
  };
  function draw(width, dpr) {
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
        pen.fillStyle = look.colour(v);
        pen.fillRect(left + place * cell, r * row, cell - gap + (gap ? 0 : 0.5), row - 1);
      }
    pen.fillStyle = ofStyle("--dim");
    pen.font = `12px ${ofStyle("--sans")}`;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const late = ranks.map((rank) => named.includes(rank)), bold = `bold ${pen.font}`, plain = pen.font;
    const count = (first, step, of) => Array.from({ length: of }, (_, k) => late[first + k * step]).filter(Boolean).length;
    for (let r = 0; r < each; r += Math.ceil(14 / row)) {
      const whole = 2 * count(r, each, names.length) > names.length;
      pen.fillStyle = ofStyle(whole ? "--accent" : "--dim");
      pen.font = whole ? bold : plain;
      pen.fillText((whole ? "▲ " : "") + "place " + r, left - 8, r * row + row / 2);
    }
    pen.fillStyle = ofStyle("--dim");
    pen.font = plain;
    pen.textAlign = "center";
    const longest = Math.max(...names.map((name) => pen.measureText(name).width)) + 12;
    for (let h = 0; h < names.length; h += Math.max(1, Math.ceil(longest / (cell / per)))) {
      const x = Math.max(longest / 2, left + (Math.floor(h / per) + 0.5) * cell);
      if (x + longest / 2 <= width + 12) pen.fillText(names[h], x, row * each + 12);
    }
    pen.fillStyle = ofStyle("--accent");
    pen.font = bold;
    let free = 0;
    names.forEach((name, h) => {
      const label = "▲ " + name, half = pen.measureText(label).width / 2, own = count(h * each, 1, each);
      const x = Math.max(half, Math.min(left + (Math.floor(h / per) + 0.5) * cell, width - half));
      if (x - half < free || !(2 * own > each || (own && named.length <= MOST_MARKS))) return;
      pen.fillText(label, x, row * each + 30);
      free = x + half + 8;
    });
    document.getElementById("hosts-note").textContent = `${look.metric().label} of each rank, the mean over the steps. A column is a host, a row the ranks with the same place on each host.`;
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
    look.read.textContent = `host ${hosts.names[Math.floor(i / hosts.each)]}, place ${i % hosts.each}: rank ${ranks[i]}, `
      + `${look.metric().label.toLowerCase()} ${look.format(mean(i))} ms, the mean over the steps`;
  });
  grid.addEventListener("click", (event) => { const i = hostAt(event); if (i !== null) chosen(i); });
  return draw;
}
