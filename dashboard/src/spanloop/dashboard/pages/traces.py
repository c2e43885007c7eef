"""Traces as they arrived, converted or not: a list with filters; with ``?trace=…`` one trace with its spans."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import spans as span_view
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.page_frame import nothing_yet, page, time_range
from spanloop.dashboard.queries import traces as trace_reads
from spanloop.dashboard.view_models.formatting import count, duration
from spanloop.store import Store

_PAGE_ROWS = 100


def render() -> None:
    """Draw the list, or the one trace that the address names."""
    chosen = st.query_params.get("trace", "")
    if chosen:
        with page("Trace", chosen):
            _trace(resources.store(), chosen)
        return
    with page("Traces", "What your apps sent, whether or not it became an episode. Click a row to open it."):
        _list(resources.store())


def _list(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = time_range("traces_range")
        failed = st.toggle("With failed spans", key="failed", bind="query-params")
        text = st.text_input(
            "Search",
            placeholder="part of a trace, task or session id, an agent or a name",
            key="trace_search",
            bind="query-params",
            label_visibility="collapsed",
        )
    number = int(st.session_state.get("traces_page", 1))
    chosen = trace_reads.TraceFilter(text=text, only_failed=failed)
    found = trace_reads.traces(store, since, chosen, max_rows=_PAGE_ROWS + 1, skip_rows=(number - 1) * _PAGE_ROWS)
    if found.is_empty():
        if chosen == trace_reads.TraceFilter() and not since and number == 1:
            nothing_yet("No span has arrived yet.", "Run your app with:", "opentelemetry-instrument python app.py")
        else:
            st.info("No trace matches these filters.", icon=":material/filter_alt_off:")
        return
    shown = found.head(_PAGE_ROWS)
    picked = tables.pick_row(_table(shown), shown["trace_id"].to_list(), key="traces", columns=_columns())
    if picked:
        st.query_params["trace"] = picked
        st.rerun()
    if found.height > _PAGE_ROWS or number > 1:
        st.number_input("Page", min_value=1, value=1, key="traces_page", width=140)
        st.caption(f"{_PAGE_ROWS} traces a page, the newest first.")


def _table(found: pl.DataFrame) -> pl.DataFrame:
    return found.select(
        "started_at",
        "root_name",
        "service_name",
        "agent_name",
        "model",
        "task_id",
        "span_count",
        "failed_span_count",
        "model_calls",
        (pl.col("input_tokens") + pl.col("output_tokens")).alias("tokens"),
        (pl.col("duration_ns") / 1e9).alias("duration_s"),
        "trace_id",
    )


def _columns() -> tables.Columns:
    return {
        "started_at": tables.when("started"),
        "root_name": TextColumn("root span", width=160),
        "service_name": TextColumn("service", width=100),
        "agent_name": TextColumn("agent", width=100),
        "model": TextColumn("model", width=110),
        "task_id": TextColumn("task", width=100),
        "span_count": NumberColumn("spans", width=55),
        "failed_span_count": NumberColumn("failed", help="Spans with an error", width=55),
        "model_calls": NumberColumn("calls", help="Model calls", width=55),
        "tokens": NumberColumn("tokens", width=70),
        "duration_s": NumberColumn("seconds", format="%.2f", width=70),
        "trace_id": TextColumn("trace", width=110),
    }


def _trace(store: Store, trace_id: str) -> None:
    if st.button("All traces", icon=":material/arrow_back:", type="tertiary"):
        st.query_params.pop("trace", None)
        st.rerun()
    head = trace_reads.trace(store, trace_id)
    if head is None:
        st.info("No span of this trace is stored.", icon=":material/inbox:")
        return
    values = {
        "Spans": count(head.span_count),
        "Failed": count(head.failed_span_count),
        "Model calls": count(head.model_calls),
        "Tokens": count(head.input_tokens + head.output_tokens),
        "Took": duration(head.duration_ns),
    }
    for column, (name, value) in zip(st.columns(len(values)), values.items(), strict=True):
        column.metric(name, value)
    for episode_id in head.episode_ids:
        if st.button(f"Open episode {episode_id}", icon=":material/forum:", key=f"open_{episode_id}"):
            st.switch_page("../pages/episodes.py", query_params={"episode": episode_id})
    if not head.episode_ids:
        st.caption("No episode holds it: it has no model call, or it is not converted yet.")
    span_view.show(store, trace_reads.spans(store, trace_id, head))


render()
