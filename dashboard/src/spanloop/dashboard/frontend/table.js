// Below this width a row is a block of lines; see table.css.
const isStacked = window.matchMedia("(max-width: 760px)");

export default function (component) {
  const { data, parentElement } = component;
  const host = parentElement.querySelector(".table-host");
  const state = (host.state ??= { active: -1, selected: new Set(), hidden: null, order: null, content: "" });
  const content = JSON.stringify(data);
  if (state.content !== content) {
    if (state.content && JSON.parse(state.content).address !== data.address) state.active = -1;
    state.content = content;
    const ids = new Set(data.rows.map((row) => row.id));
    state.selected = new Set([...state.selected].filter((id) => ids.has(id)));
  }
  state.hidden ??= new Set(data.hidden);

  const enabledColumns = () => data.columns.filter((column) => !state.hidden.has(column.id));
  // The narrowest a column without a width of its own may be.
  const flexible = data.canChoose ? 150 : 100;
  const needed = (list) => list.reduce((sum, column) => sum + (column.width || flexible), data.isSelectable ? 30 : 0);
  // Columns of a list that have no room are left out, ids first, then numbers, each from the right; a small table has no
  // choice of columns and scrolls sideways.
  const columns = () => {
    let shown = enabledColumns();
    if (!data.canChoose || isStacked.matches || !host.clientWidth) return shown;
    const given = ["id", "number", "text", "tag"].flatMap((kind) => shown.slice(1).filter((column) => column.kind === kind).reverse());
    for (const column of given) {
      if (needed(shown) <= host.clientWidth) break;
      shown = shown.filter((each) => each !== column);
    }
    return shown;
  };

  // Two sheets, drawn: many fonts lack the character.
  const copyIcon = () => {
    const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [name, value] of Object.entries({ class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" })) icon.setAttribute(name, value);
    const sheets = document.createElementNS(icon.namespaceURI, "path");
    sheets.setAttribute("d", "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3");
    icon.append(sheets);
    return icon;
  };

  const copy = (text, button) => {
    const area = make("textarea", { style: "position:fixed;opacity:0", text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.textContent = "✓";
    setTimeout(() => button.replaceChildren(copyIcon()), 1200);
  };

  const bars = (values) => {
    const highest = Math.max(...values, 1e-9);
    return make("span", { class: "spark", "aria-hidden": true },
      ...values.map((value) => make("i", { style: `height:${Math.max(6, (100 * value) / highest)}%` })));
  };

  const cellContent = (cell, column, row, isFirst) => {
    const value = cell !== null && typeof cell === "object" ? cell : { text: cell ?? "" };
    if (value.bars) return [bars(value.bars)];
    const text = String(value.text ?? "");
    if (!text) return [];
    if (column.kind === "tag" && !value.only && !(isFirst && row.href)) return [make("span", { class: `label ${value.tone ?? ""}`, text })];
    if (column.kind === "progress") {
      return [make("span", { class: "meter", title: text }, make("i", { style: `width:${100 * value.share}%` })),
        make("small", { text })];
    }
    const inner = column.kind === "tag" ? [make("span", { class: `label ${value.tone ?? ""}`, text })] : highlighted(text);
    const href = value.href ?? (isFirst ? row.href : undefined);
    const shown = href ? [link(href, { tabindex: isFirst ? 0 : -1 }, ...inner)] : inner;
    if (value.only) {
      shown.push(link(value.only, { list: data.list, class: "copy", title: `Only ${text}`, "aria-label": `Only ${column.label} ${text}`, tabindex: -1 }, "▽"));
    }
    if (column.kind !== "id") return shown;
    const button = make("button", {
      class: "copy", type: "button", title: `Copy ${text}`, "aria-label": `Copy ${text}`,
      tabindex: -1, onclick: (event) => { event.stopPropagation(); copy(value.id ?? text, button); },
    }, copyIcon());
    return [...shown, button];
  };

  const activate = (index, focus = true) => {
    state.active = Math.max(0, Math.min(data.rows.length - 1, index));
    const lines = [...host.querySelectorAll("tbody tr")];
    lines.forEach((line, number) => line.classList.toggle("active", number === state.active));
    const line = lines[state.active];
    line?.scrollIntoView({ block: "nearest" });
    if (focus) (line?.querySelector("a, input") ?? line)?.focus({ preventScroll: true });
  };

  const select = (id, isSelected) => {
    if (isSelected) state.selected.add(id);
    else state.selected.delete(id);
    drawBar();
    host.querySelectorAll("tbody tr").forEach((line) => {
      const isIn = state.selected.has(line.dataset.id);
      line.classList.toggle("selected", isIn);
      const box = line.querySelector("input");
      if (box) box.checked = isIn;
    });
    const all = host.querySelector("thead input");
    if (all) all.checked = state.selected.size > 0 && state.selected.size === data.rows.length;
  };

  const line = (row) => {
    const element = make("tr", {
      "data-id": row.id, tabindex: row.href ? undefined : -1,
      class: `${row.href ? "openable" : ""} ${state.selected.has(row.id) ? "selected" : ""} ${row.isCurrent ? "current" : ""}`,
    });
    if (data.isSelectable) {
      element.append(make("td", { class: "select" }, make("input", {
        type: "checkbox", "aria-label": `Select ${row.id}`, checked: state.selected.has(row.id),
        onclick: (event) => { event.stopPropagation(); select(row.id, event.target.checked); },
      })));
    }
    columns().forEach((column, index) => {
      const cell = row.cells[column.id];
      const title = cell !== null && typeof cell === "object" ? cell.title ?? cell.text : cell;
      element.append(make("td", {
        class: column.kind, "data-label": column.label,
        title: title ? String(title).replace(/[\u0002\u0003]/g, "") : undefined,
      }, ...cellContent(cell, column, row, index === 0)));
    });
    if (row.href) {
      const open = (event, isNew) => {
        if (!document.getSelection().isCollapsed || event.target.closest("a, button, input, .select")) return;
        if (isNew) window.open(row.href, "_blank");
        else visit(row.href);
      };
      element.addEventListener("click", (event) => open(event, !isPlainClick(event)));
      element.addEventListener("auxclick", (event) => event.button === 1 && open(event, true));
    }
    return element;
  };

  const text = (row, id) => {
    const cell = row.cells[id];
    const value = cell !== null && typeof cell === "object" ? cell.key ?? cell.text : cell;
    return value ?? "";
  };

  const sortedRows = () => {
    if (!state.order) return data.rows;
    const { id, sign } = state.order;
    const compare = (left, right) =>
      typeof left === "number" && typeof right === "number" ? left - right
        : String(left).localeCompare(String(right), undefined, { numeric: true });
    return [...data.rows].sort((left, right) => sign * compare(text(left, id), text(right, id)));
  };

  const header = (column) => {
    const own = state.order?.id === column.id ? state.order.sign : 0;
    const direction = column.sorted || (own > 0 ? "ascending" : own < 0 ? "descending" : "");
    const arrow = direction ? make("span", { class: "arrow", "aria-hidden": true, text: direction === "ascending" ? "↑" : "↓" }) : null;
    const options = { title: column.help || undefined };
    let inner = make("span", options, column.label, arrow);
    if (column.href) inner = link(column.href, { ...options, list: data.list }, column.label, arrow);
    else if (data.isSortable) {
      inner = make("button", { ...options, type: "button", class: "sort", onclick: () => {
        state.order = { id: column.id, sign: own > 0 ? -1 : 1 };
        draw();
      } }, column.label, arrow);
    }
    return make("th", {
      scope: "col", class: column.kind, "aria-sort": direction || undefined,
      style: column.width ? `width:${column.width}px` : undefined,
    }, inner);
  };

  const shownIds = () => `${isStacked.matches} ${columns().map((column) => column.id)}`;
  const columnsLabel = () => {
    const left = enabledColumns().length - columns().length;
    return left ? `Columns (no room for ${left})` : "Columns";
  };

  const chooseColumns = () => {
    const list = make("div", { class: "menu", role: "group", "aria-label": "Columns" });
    data.columns.slice(1).forEach((column) => {
      list.append(make("label", {}, make("input", {
        type: "checkbox", checked: !state.hidden.has(column.id),
        onchange: (event) => {
          if (event.target.checked) state.hidden.delete(column.id);
          else state.hidden.add(column.id);
          component.setTriggerValue("columns", { hidden: [...state.hidden] });
          drawTable();
          summary.textContent = columnsLabel();
        },
      }), column.label));
    });
    const summary = make("summary", { text: columnsLabel() });
    return make("details", { class: "columns" }, summary, list);
  };

  const drawBar = () => {
    const bar = host.querySelector(".bar");
    if (!bar) return;
    const chosen = data.rows.filter((row) => state.selected.has(row.id)).map((row) => row.id);
    const actions = [];
    if (chosen.length) {
      actions.push(make("span", { class: "count", text: `${chosen.length} selected` }));
      if (data.compareHref) {
        actions.push(chosen.length === 2
          ? link(data.compareHref + chosen.map(encodeURIComponent).join(","), { class: "action" }, "Compare")
          : make("span", { class: "hint", text: "select two to compare" }));
      }
      const button = make("button", { class: "action copy", type: "button", title: "Copy the ids", "aria-label": "Copy the ids",
        onclick: () => copy(chosen.join("\n"), button) }, copyIcon());
      actions.push(button, make("button", { class: "action", type: "button", text: "Clear", onclick: () => {
        state.selected.clear();
        select("", false);
      } }));
    }
    const collect = data.canCollect
      ? [make("button", {
          class: "action collect", type: "button", text: "Add to data set",
          title: chosen.length ? "Add what is selected" : "Add everything that is filtered, on all pages",
          onclick: () => component.setTriggerValue("collect", { ids: chosen }),
        })] : [];
    const pages = (data.pages ?? []).map((page) => page.href
      ? link(page.href, { class: "page", "aria-label": page.label, title: page.label, rel: page.rel }, page.text)
      : make("span", { class: "page off", "aria-hidden": true, text: page.text }));
    bar.replaceChildren(
      make("span", { class: "total", role: "status", text: data.total ?? "" }),
      ...(data.range ? [make("span", { class: "hint", text: data.range })] : []),
      ...actions, ...collect, ...(data.judgeHref ? [link(data.judgeHref, { class: "action judge", title: "Judge what is filtered, one after another" }, "Judge one by one")] : []),
      make("span", { class: "space" }), ...pages, ...(data.canChoose ? [chooseColumns()] : []));
  };

  const drawTable = () => {
    const shown = columns();
    const select_all = data.isSelectable
      ? [make("th", { class: "select", scope: "col" }, make("input", {
          type: "checkbox", "aria-label": "Select all rows of this page",
          onclick: (event) => {
            state.selected = new Set(event.target.checked ? data.rows.map((row) => row.id) : []);
            select("", false);
          },
        }))] : [];
    state.shown = shownIds();
    const table = make("table", { "aria-label": data.label, style: isStacked.matches ? undefined : `min-width:${needed(shown)}px` },
      make("thead", {}, make("tr", {}, ...select_all, ...shown.map(header))),
      make("tbody", {}, ...sortedRows().map(line)));
    host.querySelector(".body").replaceChildren(table);
    if (state.active >= 0) activate(state.active, false);
  };

  const draw = () => {
    host.classList.toggle("plain", !data.isPrimary);
    const hasBar = data.total || data.isSelectable || data.pages?.length;
    host.replaceChildren(...(hasBar ? [make("div", { class: "bar" })] : []), make("div", { class: "body" }));
    drawBar();
    drawTable();
  };
  draw();
  host.watcher?.disconnect();
  host.watcher = new ResizeObserver(() => {
    if (state.shown !== shownIds()) draw();
  });
  host.watcher.observe(host);

  const onKey = (event) => {
    if (!data.isPrimary || event.metaKey || event.ctrlKey || event.altKey || !host.isConnected) return;
    if (isTyping() && !(event.composedPath()[0] instanceof HTMLInputElement && event.composedPath()[0].type === "checkbox")) return;
    const row = sortedRows()[state.active];
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (step) activate(state.active + step);
    else if (event.key === "Enter" && row?.href && event.composedPath()[0].tagName !== "A") visit(row.href);
    else if (event.key === "x" && row && data.isSelectable) select(row.id, !state.selected.has(row.id));
    else if (event.key === "c" && data.compareHref && state.selected.size === 2) host.querySelector("a.action:not(.judge)")?.click();
    else if (data.judgeHref && ["g", "b"].includes(event.key) && (state.selected.size || row)) {
      const ids = state.selected.size ? [...state.selected] : [row.id];
      component.setTriggerValue("judge", { verdict: event.key === "g" ? "good" : "bad", ids });
    } else if (event.key === "n") host.querySelector('a.page[rel="next"]')?.click();
    else if (event.key === "p") host.querySelector('a.page[rel="prev"]')?.click();
    else return;
    event.preventDefault();
  };
  return listen(host, { keydown: onKey });
}
