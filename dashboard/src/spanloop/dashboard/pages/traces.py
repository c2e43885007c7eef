"""List traces with filters, converted or not; ``?trace=…`` shows one trace with its spans."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar
from zoneinfo import ZoneInfo

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import filter_bar, record_list, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import link_back, linked_page, no_span_yet, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.spans import inspector
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import lists, previews, sources, traces
from spanloop.dashboard.view_models.formatting import count, duration, short_id
from spanloop.store import Store


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
        with page(
            "Traces",
            "All traces that are stored, converted into episodes or not: those that your apps sent, and those of "
            "spanloop's training jobs. "
            "A click opens a row; press / to search and f to filter.",
        ):
            _list(context.store())


def _list(store: Store) -> None:
    filters = filter_bar.read_filters()
    filter_bar.show(store, filters, page="traces", search_hint="Words in messages and errors, a name or an id")
    matches, sort = record_list.read_page(store, sources.TRACES, lists.fetch_traces, filters)
    if matches.rows.is_empty():
        if filters.is_empty:
            no_span_yet(store, "No trace yet.")
        else:
            record_list.show_no_match(matches, filters, "traces", "trace")
        return
    record_list.search_note(matches.words)
    ids: list[str] = matches.rows["trace_id"].to_list()
    state = record_list.list_state(matches, sources.TRACES, filters, sort, path="traces", noun="trace")
    hrefs = [address("traces", trace=each) for each in ids]
    tables.show_list(_rows(store, matches), _columns(), hrefs, ids, state)
    if matches.words:
        st.caption("Words are found in converted traces; names and ids in all.")


def _rows(store: Store, matches: lists.ListPage) -> list[dict[str, object]]:
    converted = previews.fetch_trace_episodes(store, matches.rows)
    texts = previews.fetch_previews(store, converted.select("episode_id", "revision").unique())
    episodes = dict(converted.select("trace", "episode_id").iter_rows())
    snippets = previews.fetch_snippets(store, list(texts), matches.words) if matches.words else {}
    rows: list[dict[str, object]] = []
    for row in matches.rows.iter_rows(named=True):
        episode_id = episodes.get(row["trace_id"], "")
        preview = texts.get(episode_id, previews.Preview())
        rows.append(
            {
                "started": row["started_at"],
                "root": row["root_name"],
                "status": tables.tag("failed", "bad") if row["failed_span_count"] else "",
                "input": snippets.get(episode_id, "") or preview.input,
                "output": preview.output,
                "service": row["service_name"],
                "agent": row["agent"],
                "model": row["model"],
                "task": row["task_id"],
                "spans": row["span_count"],
                "failed": row["failed_span_count"],
                "calls": row["model_calls"],
                "tokens": row["tokens"],
                "duration": tables.duration_cell(row["duration_ns"]),
                "session": row["session_id"],
                "episode": tables.link_cell(episode_id, address("episodes", episode=episode_id)) if episode_id else "",
                "trace": row["trace_id"],
            }
        )
    return rows


def _columns() -> dict[str, Column]:
    return {
        "started": tables.time_column("started", sort="started"),
        "root": Column("root span", width=150, sort="root"),
        "status": Column("status", "tag", width=70),
        "input": Column("input", "preview", "Of its episode, or the place that was found"),
        "output": Column("output", "preview", "Of its episode"),
        "service": Column("service", width=110, sort="service", filter="service"),
        "agent": Column(
            "agent", help="The service where the agent has no name", width=100, sort="agent", is_hidden=True
        ),
        "model": Column("model", width=120, sort="model", filter="model"),
        "task": Column("task", width=110, is_hidden=True),
        "spans": Column("spans", "number", width=58, sort="spans"),
        "failed": Column("failed", "number", "Spans with an error", 58, sort="failed"),
        "calls": Column("calls", "number", "Model calls", 58, sort="calls"),
        "tokens": Column("tokens", "number", width=72, sort="tokens"),
        "duration": Column("took", "number", width=76, sort="duration"),
        "session": Column("session", "id", width=110, is_hidden=True),
        "episode": Column("episode", "id", width=112),
        "trace": Column("trace", "id", width=112),
    }


def _trace(store: Store, trace_id: str) -> None:
    link_back("traces", "All traces")
    trace = traces.fetch_trace(store, trace_id)
    if trace is None:
        st.info("No span of this trace is stored.", icon=":material/inbox:")
        return
    tokens = trace.input_tokens + trace.output_tokens
    local = trace.started_at.astimezone(ZoneInfo(resources.time_zone()))
    facts = [
        f"**{count(trace.span_count)}** span{'' if trace.span_count == 1 else 's'}",
        f":red[**{count(trace.failed_span_count)}** failed]" if trace.failed_span_count else "none failed",
        f"**{count(trace.model_calls)}** model call{'' if trace.model_calls == 1 else 's'}",
        f"{count(tokens)} tokens" if tokens else "",
        f"took **{duration(trace.duration_ns)}**",
        f"started {local:%Y-%m-%d %H:%M:%S %Z}",
        f"service **{escape_md(trace.service_name)}**" if trace.service_name else "",
        f"task **{escape_md(trace.task_id)}**" if trace.task_id else "",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    with st.container(horizontal=True):
        for episode_id in trace.episode_ids:
            st.page_link(
                linked_page("episodes"),
                label=f"Episode {escape_md(short_id(episode_id))}",
                icon=":material/forum:",
                query_params={"episode": episode_id},
            )
        if trace.session_id:
            st.page_link(
                linked_page("sessions"),
                label=f"Session {escape_md(short_id(trace.session_id))}",
                icon=":material/chat:",
                query_params={"conversation": trace.session_id, "turn": trace_id},
            )
    if not trace.episode_ids:
        st.caption("No episode contains it: it has no model call, or is not converted yet.")
    inspector.show(
        store,
        lambda: traces.fetch_trace_spans(store, trace_id, trace),
        (trace.span_count, trace.duration_ns, trace.failed_span_count),
        "traces",
        trace=trace_id,
    )
