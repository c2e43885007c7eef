"""Spans as a tree, and everything that a chosen one carries: what an episode's and a trace's page share."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import TextColumn

from spanloop.dashboard.components import markup, tables
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.view_models.span_tree import Span, layout_tree
from spanloop.store import Store


def show(store: Store, found: list[Span]) -> None:
    """Draw the tree, and under it the span that was chosen."""
    if not found:
        st.info("No span of it is stored any more.", icon=":material/inbox:")
        return
    if len(found) == reads.MAX_SPANS:
        st.caption(f"Only the first {reads.MAX_SPANS} spans are shown.")
    lines = layout_tree(found)
    st.html(markup.span_tree(lines))
    st.space("small")
    labels = [f"{'· ' * min(line.depth, 8)}{line.span.name} ({line.span.span_id[:8]})" for line in lines]
    chosen = st.selectbox(
        "Everything that one span carries",
        range(len(lines)),
        index=None,
        format_func=labels.__getitem__,
        placeholder="choose a span",
    )
    if chosen is None:
        return
    detail = reads.span(store, lines[chosen].span)
    if detail is None:
        return
    _key_values("Attributes", detail.attributes)
    for name, attributes in detail.events:
        _key_values(f"Event: {name}", attributes)
    _key_values(
        "Resource", detail.resource | {"scope": detail.scope_name, "status": f"{detail.status} {detail.status_message}"}
    )


def _key_values(title: str, values: dict[str, str]) -> None:
    st.markdown(f"**{plain(title)}**")
    frame = pl.DataFrame(
        {"name": list(values), "value": [value[:20_000] for value in values.values()]},
        schema={"name": pl.String, "value": pl.String},
    ).sort("name")
    tables.show(frame, {"name": TextColumn(width="medium"), "value": TextColumn(width="large")})
