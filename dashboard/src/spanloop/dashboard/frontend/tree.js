// The spans of a trace. Only the lines in sight are elements, so that a trace of ten thousand spans scrolls like a short one.
const LINE_PX = 26;
const MARGIN_LINES = 12;
const KINDS = { llm: "model", tool: "tool", agent: "agent", task: "task", other: "" };
export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".tree-host");
  const state = (host.state ??= { key: "", packed: "", lines: [] });
  if (state.packed !== data.lines) {
    const { columns, took } = JSON.parse(data.lines);
    state.took = took;
    const path = [];
    state.packed = data.lines;
    state.lines = columns.id.map((id, number) => {
      const line = { id };
      for (const [name, values] of Object.entries(columns)) line[name] = values[number];
      path.length = line.depth;
      line.parent = path[line.depth - 1] ?? "";
      path.push(id);
      line.isParent = columns.depth[number + 1] > line.depth;
      line.words = [line.name, line.kind, line.note, line.error, line.other, id].join(" ").toLowerCase();
      return line;
    });
    state.index = new Map(state.lines.map((line, number) => [line.id, number]));
  }
  const { lines, index } = state;
  if (state.key !== data.key) Object.assign(state, { key: data.key, collapsed: new Set(), isFailed: false, text: data.matching.text, active: "", isNew: true });
  const matching = new Set(data.matching.ids);
  // The address has more parameters than the tree knows of, such as the view of the span.
  const address = (changes) => {
    const url = new URL(document.location.href);
    for (const [name, value] of Object.entries(changes)) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    return url.href;
  };
  const selected = () => new URL(document.location.href).searchParams.get("span") ?? "";

  // What a search finds is shown below the spans it is part of.
  const shownLines = () => {
    const text = state.text.trim().toLowerCase();
    if (!text && !state.isFailed) {
      const shown = [];
      let hiddenBelow = Infinity;
      lines.forEach((line, number) => {
        if (line.depth > hiddenBelow) return;
        hiddenBelow = state.collapsed.has(line.id) ? line.depth : Infinity;
        shown.push(number);
      });
      return { shown, matches: null };
    }
    const isInside = state.text.trim() === data.matching.text;
    const matches = new Set();
    const kept = new Set();
    const path = [];
    lines.forEach((line, number) => {
      path.length = line.depth;
      path.push(number);
      if (state.isFailed && !line.error) return;
      if (text && !line.words.includes(text) && !(isInside && matching.has(line.id))) return;
      matches.add(number);
      for (let at = path.length - 1; at >= 0 && !kept.has(path[at]); at -= 1) kept.add(path[at]);
    });
    return { shown: lines.map((_, number) => number).filter((number) => kept.has(number)), matches };
  };

  const open = (id) => {
    visit(address({ span: id === selected() ? "" : id }), true);
    drawWindow(true);
  };

  const lineElement = (number, at, chosen) => {
    const line = lines[number];
    const { matches, shown } = current;
    const isOpen = !state.collapsed.has(line.id);
    const toggle = line.isParent
      ? make("button", { class: "toggle", type: "button", tabindex: -1, "aria-hidden": "true", text: isOpen ? "▾" : "▸",
          onclick: (event) => { event.stopPropagation(); fold(line.id, isOpen); } })
      : make("span", { class: "toggle" });
    const name = make("a", { href: address({ span: line.id }), tabindex: -1, text: line.name || "(no name)", onclick: (event) => {
      event.stopPropagation();
      if (!isPlainClick(event)) return;
      event.preventDefault();
      state.active = line.id;
      open(line.id);
    } });
    const left = Math.min(line.left, 99.4);
    const element = make("div", {
      role: "treeitem", id: `line-${line.id}`, "aria-level": line.depth + 1, "aria-setsize": shown.length, "aria-posinset": at + 1,
      "aria-selected": String(line.id === chosen), "aria-expanded": line.isParent ? String(isOpen) : undefined,
      class: `line ${line.kind} ${line.error ? "failed" : ""} ${line.id === state.active ? "active" : ""} ${matches && !matches.has(number) ? "around" : ""}`,
      title: `${line.name} · span ${line.id}`,
      style: `top:${at * LINE_PX}px`,
      onclick: () => { state.active = line.id; if (document.getSelection().isCollapsed) open(line.id); },
    },
    make("span", { class: "name", style: `padding-left:${14 * Math.min(line.depth, 14)}px` }, toggle,
      line.depth > 14 ? make("small", { text: `↳${line.depth} ` }) : null, name,
      line.error ? make("span", { class: "error", text: ` ✕ ${line.error}` }) : null,
      line.note ? make("small", { text: ` ${line.note}` }) : null),
    make("span", { class: "kind", text: KINDS[line.kind] ?? "" }),
    make("span", { class: "tokens number", text: line.tokens }),
    make("span", { class: "number", text: line.took }),
    make("span", { class: "when", "aria-hidden": "true" },
      make("i", { style: `left:${left}%;width:${Math.max(Math.min(line.width, 100 - left), 0.6)}%` })));
    return element;
  };

  let current = { shown: [], matches: null };
  const drawn = { from: -1, to: -1 };
  const drawWindow = (isForced) => {
    const from = Math.max(0, Math.floor(scroller.scrollTop / LINE_PX) - MARGIN_LINES);
    const to = Math.min(current.shown.length, Math.ceil((scroller.scrollTop + scroller.clientHeight) / LINE_PX) + MARGIN_LINES);
    if (!isForced && from === drawn.from && to === drawn.to) return;
    Object.assign(drawn, { from, to });
    const chosen = selected();
    space.replaceChildren(...current.shown.slice(from, to).map((number, at) =>
      lineElement(number, from + at, chosen)));
    const isDrawn = state.active && current.shown.slice(from, to).some((number) => lines[number].id === state.active);
    if (isDrawn) scroller.setAttribute("aria-activedescendant", `line-${state.active}`);
    else scroller.removeAttribute("aria-activedescendant");
  };
  const draw = () => {
    current = shownLines();
    space.style.height = `${current.shown.length * LINE_PX}px`;
    const all = `${lines.length.toLocaleString("en")} span${lines.length === 1 ? "" : "s"}`;
    total.textContent = current.matches ? `${current.matches.size.toLocaleString("en")} of ${all}` : all;
    drawWindow(true);
  };
  const fold = (id, isFolded) => {
    if (isFolded) state.collapsed.add(id);
    else state.collapsed.delete(id);
    draw();
  };
  const reveal = (id) => {
    const at = current.shown.indexOf(index.get(id));
    if (at < 0) return;
    const top = at * LINE_PX;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top + LINE_PX > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + LINE_PX - scroller.clientHeight;
  };

  host.querySelector(".tree-frame")?.remove();
  const scrolled = state.scroller?.scrollTop ?? 0;
  const total = make("span", { class: "total", role: "status" });
  const search = make("input", { type: "search", class: "search", placeholder: "Find a name, tool, model, error or id; Enter: also in messages",
    "aria-label": "Find spans", value: state.text,
    oninput: () => { state.text = search.value; scroller.scrollTop = 0; draw(); },
    onkeydown: (event) => {
      if (event.key === "Enter") visit(address({ find: search.value.trim() }), true);
      else if (event.key === "Escape") { search.value = state.text = ""; draw(); scroller.focus(); }
      else if (event.key === "ArrowDown") { event.preventDefault(); scroller.focus(); }
      else return;
      event.stopPropagation();
    } });
  const failures = lines.filter((line) => line.error).length;
  const failed = failures ? make("button", { type: "button", class: "only", "aria-pressed": String(state.isFailed), text: `Failed ${failures.toLocaleString("en")}`,
    onclick: () => {
      state.isFailed = !state.isFailed;
      failed.setAttribute("aria-pressed", String(state.isFailed));
      scroller.scrollTop = 0;
      draw();
    } }) : null;
  const space = make("div", { class: "space", role: "presentation" });
  const scroller = make("div", { class: "scroller", role: "tree", tabindex: 0, "aria-label": "Spans", onscroll: () => drawWindow(false) }, space);
  state.scroller = scroller;
  host.append(make("div", { class: "tree-frame" },
    make("div", { class: "bar" }, search, failed, total),
    make("div", { class: "head", "aria-hidden": "true" }, make("span", { text: "span" }), make("span", { class: "kind", text: "kind" }),
      make("span", { class: "tokens number", text: "tokens" }), make("span", { class: "number", text: "took" }), make("span", { class: "when", text: `0 to ${state.took}` })),
    scroller));
  scroller.style.height = `min(${lines.length * LINE_PX + 2}px, max(220px, calc(100vh - ${data.above}px)))`;
  draw();
  scroller.scrollTop = scrolled;
  if (state.isNew && selected()) {
    state.active = selected();
    reveal(state.active);
  }
  state.isNew = false;
  drawWindow(true);

  const move = (step) => {
    const at = current.shown.indexOf(index.get(state.active));
    const next = current.shown[Math.max(0, Math.min(current.shown.length - 1, at < 0 ? 0 : at + step))];
    if (next === undefined) return;
    state.active = lines[next].id;
    reveal(state.active);
    drawWindow(true);
  };
  scroller.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    const line = lines[index.get(state.active)];
    const page = Math.max(1, Math.floor(scroller.clientHeight / LINE_PX) - 1);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -lines.length, End: lines.length }[event.key];
    if (step) move(step);
    else if (event.key === "Enter" && line) open(line.id);
    else if (event.key === "ArrowLeft" && line?.isParent && !state.collapsed.has(line.id)) fold(line.id, true);
    else if (event.key === "ArrowLeft" && line?.parent) { state.active = line.parent; reveal(line.parent); drawWindow(true); }
    else if (event.key === "ArrowRight" && line?.isParent) fold(line.id, false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  const onKey = (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || !host.isConnected || isTyping()) return;
    if (event.key === "Escape" && selected()) open(selected());
    else if (event.key === "/") { search.focus(); search.select(); }
    else return;
    event.preventDefault();
  };
  return listen(host, { keydown: onKey, popstate: () => drawWindow(true) });
}
