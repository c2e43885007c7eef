"""Draw spans as a tree, and beside it the selected span; shared by episodes and traces.

Invariant: the address states the selected span, its view and the search, so that a link shows the same.
"""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st

from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.spans import panel, tree
from spanloop.dashboard.queries import traces
from spanloop.dashboard.view_models.span_tree import Span, layout_tree
from spanloop.store import Store

_PLACE: Final = "-0-"
"""Stands in an address for what the browser fills in."""
_ABOVE_PX: Final = 300
STYLE: Final = """
.st-key-span_panel { position: sticky; top: 4.2rem; max-height: calc(100vh - 5.4rem); overflow-y: auto;
  padding: .1rem .2rem .5rem 1rem; border-left: 1px solid rgba(128, 128, 128, .25); }
@media (max-width: 640px) {
  .st-key-span_panel { position: fixed; inset: auto 0 0 0; top: auto; height: 62vh; max-height: none; z-index: 999;
    padding: .6rem .8rem 1.5rem; border-left: 0; border-top: 2px solid rgba(128, 128, 128, .4);
    background: var(--spanloop-background); }
}
"""


def show(store: Store, spans: list[Span], path: str, **place: str) -> None:
    """Draw the tree and the selected span; ``path`` and ``place`` are the page's address without them."""
    if not spans:
        st.info("No span of it is stored any longer.", icon=":material/inbox:")
        return
    if len(spans) == traces.MAX_SPANS:
        st.caption(f"Only the first {traces.MAX_SPANS:,} spans are shown.")
    find = st.query_params.get("find", "")
    selected_id = st.query_params.get("span", "")
    selected = next((span for span in spans if span.span_id == selected_id), None)
    if selected_id and selected is None:
        st.warning("The address names a span that is none of these.", icon=":material/link_off:")
    part = panel.chosen_part() if selected else ""
    close_href = address(path, **place, find=find)
    tree_area, panel_area = st.columns([5, 4], gap="small") if selected else (st.container(), None)
    with tree_area:
        tree.show(
            layout_tree(spans),
            key=f"{path} {' '.join(place.values())}",
            selected=selected.span_id if selected else "",
            span_href=address(path, **place, find=find, part=part, span=_PLACE).replace(_PLACE, "{id}"),
            close_href=close_href,
            find_href=address(path, **place, span=selected_id, part=part, find=_PLACE).replace(_PLACE, "{text}"),
            find=find,
            matches=traces.fetch_spans_with_text(store, spans, find) if find else (),
            above_px=_ABOVE_PX,
        )
    if selected and panel_area is not None:
        with panel_area, st.container(key="span_panel"):
            panel.show(store, selected, path, place | ({"find": find} if find else {}))
