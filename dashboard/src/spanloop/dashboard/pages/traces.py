"""List traces with filters, converted or not; ``?trace=…`` shows one trace with its spans."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard.components import span_inspector, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, linked_page, page, select_time_range
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import traces
from spanloop.dashboard.view_models.formatting import count, duration
from spanloop.store import Store

_PAGE_ROWS = 100


class TracesPage(Page):
    """The list of traces, or one of them."""

    title: ClassVar[str] = "Traces"
    icon: ClassVar[str] = ":material/account_tree:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the trace that the URL names."""
        trace_id = st.query_params.get("trace", "")
        if trace_id:
            with page("Trace", trace_id):
                _trace(context.store(), trace_id)
            return
        with page("Traces", "All traces that your apps sent, converted into episodes or not. Click a row to open one."):
            _list(context.store())


def _list(store: Store) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        since = select_time_range("traces_range")
        failed = st.toggle("With failed spans", key="failed", bind="query-params")
        text = st.text_input(
            "Search",
            placeholder="part of a trace, task or session id, an agent or a name",
            key="trace_search",
            bind="query-params",
            label_visibility="collapsed",
        )
    number = int(st.session_state.get("traces_page", 1))
    filters = traces.TraceFilter(text=text, only_failed=failed)
    matches = traces.fetch_traces(store, since, filters, max_rows=_PAGE_ROWS + 1, skip_rows=(number - 1) * _PAGE_ROWS)
    if matches.is_empty():
        if filters == traces.TraceFilter() and not since and number == 1:
            empty_state("No span has arrived yet.", "Run your app with:", "opentelemetry-instrument python app.py")
        else:
            st.info("No trace matches these filters.", icon=":material/filter_alt_off:")
        return
    page_rows = matches.head(_PAGE_ROWS)
    selected_id = tables.pick_row(_table(page_rows), page_rows["trace_id"].to_list(), key="traces", columns=_columns())
    if selected_id:
        st.query_params["trace"] = selected_id
        st.rerun()
    if matches.height > _PAGE_ROWS or number > 1:
        st.number_input("Page", min_value=1, value=1, key="traces_page", width=140)
        st.caption(f"{_PAGE_ROWS} traces per page, newest first.")


def _table(matches: pl.DataFrame) -> pl.DataFrame:
    return matches.select(
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
        "started_at": tables.time_column("started"),
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
    trace = traces.fetch_trace(store, trace_id)
    if trace is None:
        st.info("No span of this trace is stored.", icon=":material/inbox:")
        return
    values = {
        "Spans": count(trace.span_count),
        "Failed": count(trace.failed_span_count),
        "Model calls": count(trace.model_calls),
        "Tokens": count(trace.input_tokens + trace.output_tokens),
        "Took": duration(trace.duration_ns),
    }
    for column, (name, value) in zip(st.columns(len(values)), values.items(), strict=True):
        column.metric(name, value)
    for episode_id in trace.episode_ids:
        if st.button(f"Open episode {escape_md(episode_id)}", icon=":material/forum:", key=f"open_{episode_id}"):
            st.switch_page(linked_page("episodes"), query_params={"episode": episode_id})
    if not trace.episode_ids:
        st.caption("No episode contains it: it has no model call, or is not converted yet.")
    span_inspector.show(store, traces.fetch_trace_spans(store, trace_id, trace))
