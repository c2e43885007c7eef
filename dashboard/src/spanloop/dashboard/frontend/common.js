// Shared by the components. Text from the store reaches the document by textContent only, never as HTML.
const make = (tag, options = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name === "text") element.textContent = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

// Streamlit runs the page of the address when the browser goes through its history; a link does the same, so that one
// visit is one entry of the history.
const visit = (href, isInPlace = false) => {
  const target = new URL(href, document.location.href);
  if (target.href === document.location.href) return;
  window.history.pushState({}, "", target);
  window.dispatchEvent(new PopStateEvent("popstate"));
  if (!isInPlace) document.querySelector('[data-testid="stMain"]')?.scrollTo(0, 0);
};

// A list's links were drawn for the address `drawn`. The reader may have changed another filter since, whose rows are on
// their way: what a link changes is changed in the address of now. Another page, such as an opened row, has other
// parameters than `names` and is left as it is.
const rebased = (href, drawn, names) => {
  const [target, before, now] = [href, drawn, ""].map((each) => new URL(each, document.location.href));
  const isSameList = [...now.searchParams.keys()].every((name) => names.includes(name) || before.searchParams.has(name));
  if (target.pathname !== now.pathname || before.pathname !== now.pathname || !isSameList) return target.href;
  for (const name of new Set([...target.searchParams.keys(), ...before.searchParams.keys(), "after", "before"])) {
    const [old, next] = [before, target].map((each) => each.searchParams.getAll(name));
    const isPlace = name === "after" || name === "before";
    if (!isPlace && JSON.stringify(old) === JSON.stringify(next)) continue;
    now.searchParams.delete(name);
    next.forEach((value) => now.searchParams.append(name, value));
  }
  return now.href;
};

const isPlainClick = (event) =>
  event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

// `list` is the list that the link filters, sorts or pages.
const link = (href, { list, ...options } = {}, ...children) =>
  make("a", {
    href,
    ...options,
    onclick: (event) => {
      event.stopPropagation();
      if (!isPlainClick(event)) return;
      event.preventDefault();
      visit(list ? rebased(href, list.drawn, list.names) : href);
    },
  }, ...children);

// Streamlit calls a component again for new data, and calls what it returned only at the end: listeners of the earlier
// call would answer each key once more.
const listen = (host, listeners) => {
  host.unlisten?.();
  for (const [type, listener] of Object.entries(listeners)) window.addEventListener(type, listener);
  host.unlisten = () => {
    for (const [type, listener] of Object.entries(listeners)) window.removeEventListener(type, listener);
  };
  return host.unlisten;
};

const isTyping = () => {
  let active = document.activeElement;
  while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
  return active && (["INPUT", "TEXTAREA", "SELECT"].includes(active.tagName) || active.isContentEditable);
};

// Text between the marks U+0002 and U+0003 was searched for.
const highlighted = (text) => {
  const parts = [];
  for (const [index, piece] of text.split("\u0002").entries()) {
    const end = index ? piece.indexOf("\u0003") : -1;
    if (end < 0) parts.push(piece);
    else parts.push(make("mark", { text: piece.slice(0, end) }), piece.slice(end + 1));
  }
  return parts;
};
