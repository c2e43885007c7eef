"""Draw spans as a tree, and beside it the selected span; shared by episodes and traces.

Invariant: the address states the selected span, its view and the search, so that a link shows the same.
"""
# pyright: reportUnknownMemberType=false

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import streamlit as st

from spanloop.dashboard.components.spans import panel, tree
from spanloop.dashboard.queries import traces
from spanloop.dashboard.view_models.span_tree import Span, layout_tree
from spanloop.store import Store

_ABOVE_PX: Final = 280


class _Tree(NamedTuple):
    spans: Sequence[Span]
    packed: str


def show(store: Store, fetch: Callable[[], Sequence[Span]], state: tuple[int, ...], path: str, **place: str) -> None:
    """Draw the tree and the selected span.

    Args:
        store: The store.
        fetch: Returns the spans, ordered by start.
        state: Numbers that change when the spans do; they are read again then only.
        path: The page's path in the address.
        place: The page's parameters in the address, without those of the spans.
    """
    spans, packed = _tree((path, *place.values(), *state), fetch)
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
    # Without a panel the tree stands in a column too, so that it stays the same element, with its place and its search.
    areas = st.columns([5, 4] if selected else [1], gap="small")
    with areas[0]:
        tree.show(
            packed,
            key=f"{path} {' '.join(place.values())}",
            find=find,
            matches=traces.fetch_spans_with_text(store, spans, find) if find else (),
            above_px=_ABOVE_PX,
        )
    if selected:
        with areas[1], st.container(key="span_panel"):
            panel.show(store, selected, path, place | ({"find": find} if find else {}))


@st.cache_resource(show_spinner=False, max_entries=8)
def _tree(place: tuple[object, ...], _fetch: Callable[[], Sequence[Span]]) -> _Tree:
    """Lay out the spans of a place once: each click runs the page again."""
    del place
    spans = _fetch()
    return _Tree(spans, tree.pack(layout_tree(list(spans))) if spans else "")
