export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const host = parentElement.querySelector(".filter-host");
  const state = (host.state ??= { field: null, key: "", isOpen: false, content: "" });

  const changed = (change) => {
    const query = new URLSearchParams(data.query);
    query.delete("after");
    query.delete("before");
    change(query);
    state.field = null;
    state.isOpen = false;
    visit(rebased(`${data.path}?${query}`, data.list.drawn, data.list.names).replace(/\?$/, ""));
  };
  const added = (name, value) => changed((query) => {
    if (!query.getAll(name).includes(value)) query.append(name, value);
  });
  const replaced = (name, value) => changed((query) => {
    if (value) query.set(name, value);
    else query.delete(name);
  });

  const menu = (label, options, ...children) =>
    make("details", { class: "menu", ...options, ontoggle: (event) => closeOthers(event.target) },
      make("summary", {}, label), make("div", { class: "panel" }, ...children));
  const closeOthers = (opened) => {
    if (!opened.open) return;
    host.querySelectorAll("details[open]").forEach((each) => each !== opened && each.removeAttribute("open"));
  };

  const time = () => {
    const local = (iso) => {
      if (!iso) return "";
      const moment = new Date(iso);
      return new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
    };
    const from = make("input", { type: "datetime-local", "aria-label": "From", value: local(data.time.from) });
    const to = make("input", { type: "datetime-local", "aria-label": "To", value: local(data.time.to) });
    const iso = (input) => (input.value ? `${new Date(input.value).toISOString().slice(0, 16)}Z` : "");
    const form = make("form", { class: "between", onsubmit: (event) => {
      event.preventDefault();
      if (from.value || to.value) replaced("time", `${iso(from)}..${iso(to)}`);
    } }, make("label", {}, "From ", from), make("label", {}, "To ", to), make("button", { type: "submit", text: "Apply" }));
    const isQuick = quick.includes(data.time.value);
    return menu(make("span", { text: isQuick ? "Time" : data.time.label }), { title: `Times are in ${data.time.zone}` },
      ...data.time.presets.map((preset) => make("button", {
        type: "button", class: preset.value === data.time.value ? "item chosen" : "item", text: preset.label,
        onclick: () => replaced("time", preset.value),
      })), form, make("small", { text: `Times are in ${data.time.zone}.` }));
  };

  const quick = ["", "24h", "yesterday", "7d"];
  const quickLinks = () => {
    const times = data.time.presets.filter((preset) => quick.includes(preset.value)).map((preset) => make("button", {
      type: "button", class: "quick", text: preset.short ?? preset.label, title: preset.label,
      "aria-pressed": String(preset.value === data.time.value), onclick: () => replaced("time", preset.value),
    }));
    const others = data.quick.map(({ field, value, label }) => {
      const isOn = new URLSearchParams(data.query).getAll(field).includes(value);
      return make("button", { type: "button", class: "quick alone", text: label, "aria-pressed": String(isOn),
        onclick: () => (isOn ? without(field, value) : added(field, value)) });
    });
    return [make("span", { class: "group", role: "group", "aria-label": "Time" }, ...times), time(), ...others];
  };

  const without = (field, value) => changed((query) => {
    const rest = query.getAll(field).filter((each) => each !== value);
    query.delete(field);
    rest.forEach((each) => query.append(field, each));
  });

  const chip = ({ field, value, label, text }) => make("span", { class: "chip" },
    make("span", { class: "name", text: `${label} ` }), make("b", { text, title: text }),
    make("button", { type: "button", "aria-label": `Remove ${label} ${text}`, text: "×", onclick: () => without(field, value) }));

  const suggestions = (list, choose, input) => {
    const box = make("div", { class: "suggestions", role: "listbox", "aria-label": "Values" });
    const draw = () => {
      const part = input.value.toLowerCase();
      const matches = list.filter((each) => each.value.toLowerCase().includes(part)).slice(0, 60);
      box.replaceChildren(...matches.map((each) => make("button", {
        type: "button", role: "option", class: "item", title: each.value, onclick: () => choose(each.value),
      }, make("span", { text: each.label ?? each.value }), each.count ? make("small", { text: each.count }) : null)));
    };
    input.addEventListener("input", draw);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") {
        event.preventDefault();
        box.querySelector("button")?.focus();
      }
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
      if (!step) return;
      event.preventDefault();
      (event.target[step] ?? input).focus();
    });
    draw();
    return box;
  };

  const openField = (field) => {
    state.field = field.id;
    state.key = "";
    if (field.kind === "choice" || field.kind === "attribute") setTriggerValue("facet", { field: field.id, key: "" });
    draw();
  };

  const fieldPanel = (field) => {
    const back = make("button", { type: "button", class: "item back", text: `← ${field.label}`, onclick: () => {
      state.field = null;
      draw();
    } });
    if (field.kind === "range") {
      const low = make("input", { placeholder: "at least", "aria-label": `${field.label} at least` });
      const high = make("input", { placeholder: "at most", "aria-label": `${field.label} at most` });
      return [back, make("form", { class: "between", onsubmit: (event) => {
        event.preventDefault();
        if (low.value || high.value) replaced(field.id, `${low.value}..${high.value}`);
      } }, low, high, make("button", { type: "submit", text: "Apply" })), make("small", { text: field.help })];
    }
    const isKey = field.kind === "attribute" && !state.key;
    const choose = (value) => {
      if (!value && !state.key) return;
      if (isKey) {
        state.key = value;
        setTriggerValue("facet", { field: field.id, key: value });
        draw();
      } else added(field.id, field.kind === "attribute" ? `${state.key}=${value}` : value);
    };
    const input = make("input", {
      placeholder: isKey ? "name of an attribute" : state.key ? `value of ${state.key}, or Enter for any` : field.help || "type to find",
      "aria-label": field.label, autocomplete: "off",
    });
    const isReady = data.facet?.field === field.id && data.facet.key === state.key;
    const values = field.options ?? (isReady ? data.facet.values : []);
    const isLoading = !field.options && !isReady && field.kind !== "text";
    return [back, make("form", { onsubmit: (event) => {
      event.preventDefault();
      choose(input.value.trim());
    } }, input), isLoading ? make("small", { text: "…" }) : suggestions(values, choose, input),
    ["text", "attribute"].includes(field.kind) ? make("small", { text: field.help }) : null];
  };

  const addFilter = () => {
    const field = data.fields.find((each) => each.id === state.field);
    const items = field ? fieldPanel(field) : data.fields.map((each) =>
      make("button", { type: "button", class: "item", text: each.label, onclick: () => openField(each) }));
    const element = menu(make("span", { text: "+ Filter" }), { open: state.isOpen, "data-menu": "filter" }, ...items);
    element.addEventListener("toggle", () => {
      state.isOpen = element.open;
      if (!element.open) state.field = null;
    });
    return element;
  };

  const views = () => {
    const name = make("input", { placeholder: "name of this view", "aria-label": "Name of this view", maxlength: 60 });
    return menu(make("span", { text: "Views" }), {},
      ...data.views.map((view) => make("div", { class: "view" }, link(view.href, { class: "item" }, view.name),
        make("button", { type: "button", "aria-label": `Delete the view ${view.name}`, text: "×",
          onclick: () => setTriggerValue("view", { name: view.name, query: null }) }))),
      make("form", { onsubmit: (event) => {
        event.preventDefault();
        if (name.value.trim()) setTriggerValue("view", { name: name.value.trim(), query: data.query });
      } }, name, make("button", { type: "submit", text: "Save" })));
  };

  const search = () => {
    const input = make("input", {
      type: "search", class: "search", placeholder: data.searchHint, value: data.search, "aria-label": "Search",
    });
    return make("form", { class: "searching", role: "search", onsubmit: (event) => {
      event.preventDefault();
      replaced("q", input.value.trim());
    } }, input, make("kbd", { text: "/", "aria-hidden": true }));
  };

  // What a pressed button of its own says needs no chip.
  const hasButton = (chosen) => data.quick.some(({ field, value }) => field === chosen.field && value === chosen.value);
  const draw = () => {
    host.replaceChildren(...quickLinks(), ...data.chips.filter((each) => !hasButton(each)).map(chip), addFilter(),
      ...(data.chips.length ? [link(data.clear, { class: "clear" }, "Clear")] : []),
      ...(data.hasSearch ? [search()] : []), views());
    if (state.field) host.querySelector("[data-menu] input")?.focus();
  };
  const content = JSON.stringify(data);
  if (state.content !== content || !host.children.length) {
    state.content = content;
    draw();
  }

  const onKey = (event) => {
    if (event.key === "Escape") {
      host.querySelectorAll("details[open]").forEach((each) => each.removeAttribute("open"));
      if (isTyping()) event.composedPath()[0].blur?.();
    }
    if (isTyping() || event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.key === "/") host.querySelector(".search")?.focus();
    else if (event.key === "f") host.querySelector("[data-menu] summary")?.click();
    else return;
    event.preventDefault();
  };
  const onClick = (event) => {
    if (!event.composedPath().includes(host)) {
      host.querySelectorAll("details[open]").forEach((each) => each.removeAttribute("open"));
    }
  };
  return listen(host, { keydown: onKey, click: onClick });
}
