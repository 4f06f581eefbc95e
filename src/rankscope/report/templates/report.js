
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const byId = (id) => document.getElementById(id);

  // ---- what a table's head means stands once in the page, in the definitions
  all("[data-means]").forEach((head) => {
    const [label, meaning] = byId("means-" + head.dataset.means).children;
    head.title = `[${label.querySelector("small").textContent.split(" · ")[0]}] ${meaning.firstChild.data.trim()}`;
  });

  // ---- tables: sort, filter, copy
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === "") return 1; // unknown values go last, whichever way
    if (b === "") return -1;
    const x = Number(a), y = Number(b);
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };
  // What a cell is sorted by: what it says, unless it says so otherwise.
  const value = (cell) => {
    if (cell.dataset.v !== undefined) return cell.dataset.v;
    const text = cell.firstChild?.data ?? "", number = Number(text.replaceAll(",", ""));
    return cell.classList.contains("n") || (cell.tagName === "TD" && !cell.classList.contains("t"))
      ? (text === "" || Number.isNaN(number) ? "" : String(number)) : text.toLowerCase();
  };
  // Rows beyond the first hundred, and those of folded tables, are made when somebody sorts, filters, copies or opens them.
  const whole = (table) => {
    const name = table.id.slice("table-".length), rest = document.querySelector(`[data-rest="${name}"]`);
    if (!rest) return table;
    const numeric = all("thead th", table).map((th) => th.classList.contains("n"));
    const { texts, rows } = JSON.parse(rest.textContent), body = table.tBodies[0];
    for (const cells of rows) {
      const row = body.insertRow(), [anchor, mark] = cells.length > numeric.length ? cells.pop() : [];
      if (anchor) row.id = anchor;
      if (mark) row.className = "mark-" + mark;
      cells.forEach((given, i) => {
        const [text, title] = [typeof given === "number" ? texts[given] : given].flat(), cell = document.createElement(i ? "td" : "th");
        if (!i) cell.scope = "row";
        if (i ? !numeric[i] : numeric[i]) cell.className = i ? "t" : "n";
        if (title) cell.title = title;
        cell.textContent = text;
        row.append(cell);
      });
    }
    rest.remove();
    document.querySelector(`[data-all="${name}"]`)?.parentNode.remove();
    return table;
  };
  all("details").forEach((part) => part.addEventListener("toggle", () => all("table", part).forEach(whole)));
  all("[data-all]").forEach((button) => button.addEventListener("click", () => whole(byId("table-" + button.dataset.all))));
  // How a table is sorted and filtered is in the address, so that a link shows the same.
  const link = (table) => {
    const sorted = table.querySelector("thead [aria-sort$=ending]"), filter = document.querySelector(`[data-filter="${table.id.slice(6)}"]`);
    const state = new URLSearchParams();
    if (sorted) {
      state.set("sort", [...sorted.parentNode.children].indexOf(sorted));
      state.set("order", sorted.getAttribute("aria-sort") === "ascending" ? "up" : "down");
    }
    if (filter?.value) state.set("filter", filter.value);
    history.replaceState(null, "", `#${table.id}${state.size ? "?" + state : ""}`);
  };
  const sortBy = (header, way) => {
    const table = whole(header.closest("table")), body = table.tBodies[0];
    const index = [...header.parentNode.children].indexOf(header);
    const now = header.getAttribute("aria-sort");
    const up = way ? way === "up" : now === "none" ? !header.classList.contains("n") || index === 0 : now === "descending";
    all("thead th", table).forEach((th) => th.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].map((row) => [value(row.cells[index]), row]);
    rows.sort(([a], [b]) => (a === "" || b === "" || up ? compare(a, b) : compare(b, a)));
    body.append(...rows.map(([, row]) => row));
  };
  all("thead button").forEach((button) => button.addEventListener("click", () => {
    sortBy(button.closest("th"));
    link(button.closest("table"));
  }));

  all("[data-filter]").forEach((input) => {
    const body = byId("table-" + input.dataset.filter).tBodies[0];
    const count = document.querySelector(`[data-count="${input.dataset.filter}"]`);
    let texts = null;
    const narrow = () => {
      whole(body.parentNode);
      texts ??= new Map([...body.rows].map((row) =>
        [row, [...row.cells].map((cell) => cell.textContent + " " + (cell.title || "")).join(" ").toLowerCase()]));
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = shown === texts.size ? `${shown} rows` : `${shown} of ${texts.size} rows`;
    };
    input.addEventListener("input", () => { narrow(); link(body.parentNode); });
    input.addEventListener("change", narrow); // from a link
  });

  // ---- the menu of sections closes once a section is chosen
  const menu = document.querySelector(".menu details");
  menu.addEventListener("click", (event) => { if (event.target.closest("a")) menu.open = false; });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { menu.open = false; menu.firstElementChild.focus(); }
  });

  // On a narrow screen the cards of findings begin folded: their titles and costs are looked over first.
  if (matchMedia("(max-width: 720px)").matches) all(".fold").forEach((part) => { part.open = false; });

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
    const table = whole(byId("table-" + button.dataset.copyTable));
    const heads = all("thead th", table).map((th) => {
      const unit = th.querySelector("small");
      const label = plain(th.querySelector("button").firstChild);
      return unit ? `${label} (${plain(unit)})` : label;
    });
    const rule = all("thead th", table).map((th) => (th.classList.contains("n") ? "---:" : "---"));
    const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(plain));
    copy([heads, rule, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n") + "\n");
  }));
  all("[data-copy-verdict]").forEach((button) => button.addEventListener("click", () => {
    const hero = byId("verdict"), lines = ["**Verdict:** " + plain(hero.querySelector("h1")).replace(/^Verdict: /, ""), ""];
    const figures = all(".figures > div", hero).map((div) => `${plain(div.querySelector("dt"))}: ${plain(div.querySelector("dd"))}`);
    if (figures.length) lines.push(`*${figures.join("; ")}*`, "");
    for (const h2 of all("h2", hero)) {
      const items = all("li", h2.parentNode);
      if (items.length) lines.push(`**${plain(h2)}**`, "", ...items.map((li) => `- ${plain(li)}`), "");
    }
    copy(lines.join("\n"));
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

  // ---- what a point of the run's curve says: made when somebody points at the curve
  const curve = byId("pulse-points");
  curve?.ownerSVGElement.addEventListener("pointerenter", () => {
    const { steps, of } = JSON.parse(byId("pulse-data").textContent), number = (n) => n.toLocaleString("en");
    const svg = (name) => document.createElementNS(curve.namespaceURI, name);
    for (const [first, last, step, longest, slowest, input, fed] of of) {
      const point = svg("rect"), title = svg("title");
      const place = { class: "pulse-point", x: (first / steps) * 100 + "%", width: ((last + 1 - first) / steps) * 100 + "%", height: "100%" };
      for (const key in place) point.setAttribute(key, place[key]);
      title.textContent = (first === last ? `step ${number(first)}` : `steps ${number(first)} to ${number(last)}`) + `: ${step} ms`
        + (longest && `\nlongest ${longest} ms (rank ${slowest})`) + (input && `\nmost input ${input} ms (rank ${fed})`);
      point.append(title);
      curve.append(point);
    }
  }, { once: true });

  // ---- a link into a folded part opens it
  const unfold = () => {
    const [id, asked] = decodeURIComponent(location.hash.slice(1)).split("?");
    if (/^table-/.test(id) && byId(id) && asked) {
      const state = new URLSearchParams(location.hash.slice(location.hash.indexOf("?") + 1)), table = byId(id);
      const header = all("thead th", table)[Number(state.get("sort") ?? -1)];
      if (header) sortBy(header, state.get("order") === "up" ? "up" : "down");
      const filter = document.querySelector(`[data-filter="${id.slice(6)}"]`);
      if (filter && state.get("filter")) { filter.value = state.get("filter"); filter.dispatchEvent(new Event("change")); }
    }
    if (/^rank-\d+$/.test(id) && !byId(id) && byId("table-ranks")) whole(byId("table-ranks"));
    const target = id && byId(id);
    if (!target) return;
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    all(".fold", target).forEach((part) => { part.open = true; });
    target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
