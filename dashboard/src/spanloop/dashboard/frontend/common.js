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

const isPlainClick = (event) =>
  event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;

const link = (href, options = {}, ...children) =>
  make("a", {
    href,
    ...options,
    onclick: (event) => {
      event.stopPropagation();
      if (!isPlainClick(event)) return;
      event.preventDefault();
      visit(href);
    },
  }, ...children);

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
