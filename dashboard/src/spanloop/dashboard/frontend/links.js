// Streamlit leaves the address as it is when an entry of its navigation or a page link leads to the page that is shown,
// and its navigation keeps the parameters too. Such links, and those of figures, are visited as ours are.
export default function () {
  const onClick = (event) => {
    const anchor = event.target.closest?.("[data-testid=stHeader] a, [data-testid=stSidebar] a, [data-testid=portal] a, [data-testid=stPageLink] a, .figures a");
    if (!anchor || !isPlainClick(event)) return;
    const target = new URL(anchor.href);
    const isPage = target.pathname === document.location.pathname || anchor.closest(".figures");
    if (target.origin !== document.location.origin || !isPage) return;
    event.preventDefault();
    event.stopPropagation();
    visit(target.href);
  };
  document.addEventListener("click", onClick, true);
  return () => document.removeEventListener("click", onClick, true);
}
