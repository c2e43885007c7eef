"""List sessions with filters; ``?conversation=…`` shows one session as a conversation over its traces."""
# pyright: reportUnknownMemberType=false

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final
from zoneinfo import ZoneInfo

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import chat, filter_bar, record_list, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import link_back, linked_page, no_span_yet, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import lists, overview, previews, sessions, sources
from spanloop.dashboard.view_models.conversation import ConversationStep, build_conversation
from spanloop.dashboard.view_models.formatting import duration, short_id
from spanloop.store import Store

_WINDOW_TURNS: Final = 20


class SessionsPage(Page):
    """The list of sessions, or one of them."""

    title: ClassVar[str] = "Sessions"
    icon: ClassVar[str] = ":material/chat:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the session that the URL names."""
        if session_id := st.query_params.get("conversation", ""):
            with page("Session", session_id):
                _conversation(context.store(), session_id)
            return
        with page(
            "Sessions",
            "One row is one conversation: the traces that share a session id, or a conversation id, are its turns. "
            "A click opens a row; press / to search and f to filter.",
        ):
            _list(context.store())


def _list(store: Store) -> None:
    filters = filter_bar.read_filters()
    filter_bar.show(store, filters, page="sessions", search_hint="Words in messages and errors, a name or an id")
    matches, sort = record_list.read_page(store, sources.SESSIONS, lists.fetch_sessions, filters)
    if matches.rows.is_empty():
        if not filters.is_empty:
            record_list.show_no_match(matches, filters, "sessions", "session")
        elif overview.fetch_totals(store, 0).last_ingested_at is None:
            no_span_yet(store, "No session yet.")
        else:
            st.info("No span names a session.", icon=":material/inbox:")
            st.markdown(
                "Set the attribute `session.id` or `gen_ai.conversation.id` on the spans of your app, or give "
                "`session_id` to `spanloop.instrumentation.task`."
            )
        return
    record_list.search_note(matches.words)
    ids: list[str] = matches.rows["session_id"].to_list()
    state = record_list.list_state(matches, sources.SESSIONS, filters, sort, path="sessions", noun="session")
    hrefs = [_href(row) for row in matches.rows.iter_rows(named=True)]
    tables.show_list(_rows(store, matches.rows), _columns(), hrefs, ids, state)


def _href(row: dict[str, Any]) -> str:
    """Return the address of a session, with its range of time, so that it is found without a search of the store."""
    return address("sessions", conversation=str(row["session_id"]), time=_range(row["first_at"], row["last_at"]))


def _range(first: datetime, last: datetime) -> str:
    start, end = first - timedelta(minutes=1), last + timedelta(minutes=1)
    return f"{start.astimezone(UTC):%Y-%m-%dT%H:%MZ}..{end.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _rows(store: Store, matches: pl.DataFrame) -> list[dict[str, object]]:
    ends = pl.concat(
        matches.select(
            pl.col(f"{end}_trace_id").alias("trace_id"),
            pl.col("first_at").alias("started_at"),
            pl.col("lasted_ns").alias("duration_ns"),
        )
        for end in ("first", "last")
    ).unique("trace_id")
    converted = previews.fetch_trace_episodes(store, ends)
    texts = previews.fetch_previews(store, converted.select("episode_id", "revision").unique())
    of_trace = {trace: texts.get(episode_id, previews.Preview()) for trace, episode_id, _ in converted.iter_rows()}
    return [
        {
            "last": row["last_at"],
            "started": row["first_at"],
            "status": tables.tag("failed", "bad") if row["failed_turns"] else "",
            "input": of_trace.get(row["first_trace_id"], previews.Preview()).input,
            "output": of_trace.get(row["last_trace_id"], previews.Preview()).output,
            "turns": row["turns"],
            "failed": row["failed_turns"],
            "service": row["service"],
            "model": row["model_name"],
            "tokens": row["tokens"],
            "duration": tables.duration_cell(row["lasted_ns"]),
            "session": row["session_id"],
        }
        for row in matches.iter_rows(named=True)
    ]


def _columns() -> dict[str, Column]:
    return {
        "last": tables.time_column("last turn", sort="last"),
        "started": tables.time_column("started", sort="started"),
        "status": Column("status", "tag", width=70),
        "input": Column("first question", "preview"),
        "output": Column("last answer", "preview"),
        "turns": Column("turns", "number", "Traces", 58, sort="turns"),
        "failed": Column("failed", "number", "Turns with a failed span", 58, sort="failed"),
        "service": Column("service", width=110, sort="service", filter="service"),
        "model": Column("model", width=110, is_hidden=True),
        "tokens": Column("tokens", "number", width=72, sort="tokens"),
        "duration": Column("lasted", "number", "From the first span to the last", 88, sort="duration"),
        "session": Column("session", "id", width=130, filter="session"),
    }


def _conversation(store: Store, session_id: str) -> None:
    link_back("sessions", "All sessions")
    filters = filter_bar.read_filters()
    turns = sessions.fetch_turns(store, session_id, filters.time)
    if turns.is_empty():
        st.info("No span of this session is stored in the range of time.", icon=":material/inbox:")
        return
    failed = turns.filter(pl.col("failed_span_count") > 0).height
    facts = [
        f"**{turns.height:,}** turn{'' if turns.height == 1 else 's'}"
        + ("" if turns.height < sessions.MAX_TURNS else " and more"),
        f":red[**{failed:,}** with a failure]" if failed else "none failed",
        f"service **{escape_md(turns['service_name'][-1])}**" if turns["service_name"][-1] else "",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    first = _first_turn(turns)
    window = turns.slice(first, _WINDOW_TURNS)
    with st.container(horizontal=True, vertical_alignment="center"):
        chat.choose_format()
        is_detailed = st.toggle("Every step", key="every", bind="query-params", help="Also of other agents and tools")
    # The turn before is read too, to determine which messages are new in the first one drawn.
    steps = sessions.fetch_turn_steps(store, turns.slice(max(0, first - 1), window.height + min(first, 1)))
    spoken = _spoken(steps, turns)
    for number, row in enumerate(window.iter_rows(named=True), first + 1):
        turn = steps.get(row["trace_id"])
        _turn_heading(number, row, turn)
        if turn is None:
            st.caption("This trace is in no episode: it has no model call, or is not converted yet.")
        elif is_detailed:
            chat.show_conversation(sessions.fetch_all_steps(store, turn), turn.first.step)
        else:
            question, answer = spoken[row["trace_id"]]
            chat.show_turn(question, answer, between=_between(turn))


def _first_turn(turns: pl.DataFrame) -> int:
    """Draw the choice of a window of turns, where there are several; return the number of its first turn."""
    if turns.height <= _WINDOW_TURNS:
        return 0
    starts = list(range(0, turns.height, _WINDOW_TURNS))
    ids: list[str] = turns["trace_id"].to_list()
    named = st.query_params.get("turn", "")
    start = ids.index(named) // _WINDOW_TURNS if named in ids else len(starts) - 1
    return st.selectbox(
        "Turns",
        starts,
        index=start,
        format_func=lambda first: f"{first + 1} to {min(first + _WINDOW_TURNS, turns.height)}",
        width=200,
    )


def _spoken(
    steps: dict[str, sessions.Turn], turns: pl.DataFrame
) -> dict[str, tuple[ConversationStep, ConversationStep]]:
    """Return the new messages of each turn's first step, and the answer of its last one."""
    ordered = [steps[trace_id] for trace_id in turns["trace_id"].to_list() if trace_id in steps]
    built = build_conversation([record for turn in ordered for record in (turn.first, turn.last)])
    return {turn.trace_id: (built[2 * number], built[2 * number + 1]) for number, turn in enumerate(ordered)}


def _turn_heading(number: int, row: dict[str, Any], turn: sessions.Turn | None) -> None:
    local = row["started_at"].astimezone(ZoneInfo(resources.time_zone()))
    count = int(row["failed_span_count"])
    failed = f" · :red[{count} failed span{'' if count == 1 else 's'}]" if count else ""
    mark = " · :blue-badge[this turn]" if st.query_params.get("turn") == row["trace_id"] else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**Turn {number}** · {local:%Y-%m-%d %H:%M:%S %Z} · {duration(row['duration_ns'])}{failed}{mark}")
        st.page_link(
            linked_page("traces"),
            label=f"Trace {escape_md(short_id(row['trace_id']))}",
            icon=":material/account_tree:",
            query_params={"trace": row["trace_id"]},
        )
        if turn is not None:
            st.page_link(
                linked_page("episodes"),
                label=f"Episode {escape_md(short_id(turn.episode_id))}",
                icon=":material/forum:",
                query_params={"episode": turn.episode_id},
            )


def _between(turn: sessions.Turn) -> str:
    """Return what happened between question and answer, as Markdown; empty for a single step."""
    if turn.steps == 1 and not turn.tool_errors:
        return ""
    helpers = ", ".join(escape_md(name) for name in turn.helpers)
    facts = [
        f"{turn.steps} step{'' if turn.steps == 1 else 's'}",
        f"with {helpers}" if helpers else "",
        f":red[{turn.tool_errors} tool call{'' if turn.tool_errors == 1 else 's'} failed]" if turn.tool_errors else "",
    ]
    return " · ".join(fact for fact in facts if fact)
