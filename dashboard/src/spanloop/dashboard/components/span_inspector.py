"""Draw spans as a tree, and all fields of a selected span; shared by episodes and traces."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st

from spanloop.dashboard.components import markup, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.queries import traces
from spanloop.dashboard.view_models.span_tree import Span, layout_tree
from spanloop.store import Store


def show(store: Store, spans: list[Span]) -> None:
    """Draw the tree, and below it the selected span."""
    if not spans:
        st.info("No span of it is stored any longer.", icon=":material/inbox:")
        return
    if len(spans) == traces.MAX_SPANS:
        st.caption(f"Only the first {traces.MAX_SPANS} spans are shown.")
    lines = layout_tree(spans)
    st.html(markup.span_tree(lines))
    st.space("small")
    labels = [f"{'· ' * min(line.depth, 8)}{line.span.name} ({line.span.span_id[:8]})" for line in lines]
    selected = st.selectbox(
        "All fields of one span",
        range(len(lines)),
        index=None,
        format_func=labels.__getitem__,
        placeholder="choose a span",
    )
    if selected is None:
        return
    detail = traces.fetch_span(store, lines[selected].span)
    if detail is None:
        return
    _attribute_table("Attributes", detail.attributes)
    for name, attributes in detail.events:
        _attribute_table(f"Event: {name}", attributes)
    _attribute_table(
        "Resource", detail.resource | {"scope": detail.scope_name, "status": f"{detail.status} {detail.status_message}"}
    )


def _attribute_table(title: str, values: dict[str, str]) -> None:
    st.markdown(f"**{escape_md(title)}**")
    frame = pl.DataFrame(
        {"name": list(values), "value": [value[:20_000] for value in values.values()]},
        schema={"name": pl.String, "value": pl.String},
    ).sort("name")
    tables.show(frame, {"name": tables.text_column(width=220), "value": tables.text_column(width=420)})
