"""List episodes with filters; ``?episode=…`` shows one episode, ``?compare=…,…`` two side by side."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar, Final

import polars as pl
import streamlit as st

from spanloop.dashboard import visits
from spanloop.dashboard.components import (
    collecting,
    episode_detail,
    episode_pair,
    filter_bar,
    record_list,
    tables,
)
from spanloop.dashboard.components.judging import panel, queue
from spanloop.dashboard.components.page_frame import draw_again, no_span_yet, page
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import lists, previews, sources
from spanloop.dashboard.queries.data_sets import fetch_matching
from spanloop.store import Store
from spanloop.store.judgements import fetch_judgements

_HINT: Final = "Words in messages and errors, or an id"


class EpisodesPage(Page):
    """The list of episodes, or one or two of them."""

    title: ClassVar[str] = "Episodes"
    icon: ClassVar[str] = ":material/forum:"

    def show(self, context: PageContext) -> None:
        """Draw the list, or the episodes that the URL names."""
        if episode_id := st.query_params.get("episode", ""):
            with page("Episode", episode_id):
                episode_detail.show(context.store(), episode_id)
            return
        if "queue" in st.query_params:
            with page("Judge", "One episode after another: g good, b bad, s skip, n next, p previous."):
                queue.show(context.store())
            return
        if compared := st.query_params.get("compare", ""):
            with page("Two episodes", "Step by step, side by side."):
                episode_pair.show_two(context.store(), *[*compared.split(",", 1), ""][:2])
            return
        with page(
            "Episodes",
            "One row is one attempt at a task, with the question and the answer. "
            "A click opens a row; select two to compare them. Press / to search, f to filter, ↑ ↓ Enter to move, "
            "g or b to judge a row good or bad.",
        ):
            _list(context.store())


def _list(store: Store) -> None:
    filters = filter_bar.read_filters()
    filter_bar.show(store, filters, page="episodes", search_hint=_HINT)
    matches, sort = record_list.read_page(store, sources.EPISODES, lists.fetch_episodes, filters)
    if matches.rows.is_empty():
        if filters.is_empty:
            no_span_yet(store, "No episode yet.")
        else:
            record_list.show_no_match(matches, filters, "episodes", "episode")
        return
    record_list.search_note(matches.words)
    ids: list[str] = matches.rows["episode_id"].to_list()
    state = record_list.list_state(
        matches,
        sources.EPISODES,
        filters,
        sort,
        path="episodes",
        noun="episode",
        compare="episodes?compare=",
        judge=str(queue.DEFAULT_SIZE),
        collect=collecting.adder(
            store,
            lambda store: fetch_matching(store, filters),
            f"episodes?{filters.query()}",
            total=record_list.total_text(matches),
        ),
    )
    judgements = fetch_judgements(store, episode_ids=ids)
    verdicts = tables.show_list(
        _with_judgements(episode_rows(store, matches), judgements),
        episode_columns(is_judged=not judgements.is_empty()),
        [address("episodes", episode=each) for each in ids],
        ids,
        state,
    )
    if verdicts is not None:
        about = panel.About("the episode")
        stored = [panel.store_opinion(store, each, about, {"verdict": verdicts.verdict}) for each in verdicts.ids]
        if all(stored):
            draw_again()


def _with_judgements(rows: list[dict[str, object]], judgements: pl.DataFrame) -> list[dict[str, object]]:
    """Add what people say of each episode, newest first."""
    words: dict[str, list[str]] = {}
    for row in judgements.iter_rows(named=True):
        place = "" if row["scope"] == "episode" else f"{row['scope']} "
        by = "" if row["judged_by"] == visits.ANYONE else f" · {row['judged_by']}"
        words.setdefault(row["episode_id"], []).append(f"{place}{row['verdict'] or 'note'}{by}")
    tones: dict[str, tables.Tone] = {"good": "good", "bad": "bad"}
    for row in rows:
        stated = words.get(str(row["id"]), [])
        row["judged"] = tables.tag(", ".join(stated), tones.get(stated[0].split()[0], "")) if stated else ""
    return rows


def episode_rows(store: Store, matches: lists.ListPage) -> list[dict[str, object]]:
    """Return the cells of each episode."""
    texts = previews.fetch_previews(store, matches.rows)
    snippets = (
        previews.fetch_snippets(store, matches.rows["episode_id"].to_list(), matches.words) if matches.words else {}
    )
    rows: list[dict[str, object]] = []
    for row in matches.rows.iter_rows(named=True):
        preview = texts.get(row["episode_id"], previews.Preview())
        hit = snippets.get(row["episode_id"], "")
        rows.append(
            {
                "started": row["started_at"],
                "outcome": tables.tag(row["outcome"]),
                "input": hit or preview.input,
                "output": preview.output,
                "agent": row["agent"],
                "policy": row["policy_version"],
                "model": preview.model,
                "task": row["task_id"],
                "reward": row["reward"],
                "steps": row["step_count"],
                "errors": {
                    "text": f"{row['tool_error_count']} / {row['tool_call_count']}" if row["tool_call_count"] else "",
                    "key": row["tool_error_count"],
                },
                "tokens": row["tokens"],
                "duration": tables.duration_cell(row["duration_ns"]),
                "decided": tables.tag(
                    f"{row['fault_owner']} · {row['error_class']}", tables.TONES.get(row["fault_owner"], "")
                )
                if row["error_class"]
                else "",
                "marks": ", ".join(row["marks"]),
                "session": row["session_id"],
                "id": row["episode_id"],
            }
        )
    return rows


def episode_columns(*, is_judged: bool = False) -> dict[str, Column]:
    """Return the columns of `episode_rows`."""
    return {
        "started": tables.time_column("started", sort="started"),
        "outcome": Column("outcome", "tag", width=78, sort="outcome", filter="outcome"),
        **({"judged": Column("judged", "tag", "What people say", 92)} if is_judged else {}),
        "input": Column("input", "preview", "The newest question of the first step, or the place that was found"),
        "output": Column("output", "preview", "The last answer"),
        "agent": Column(
            "agent", help="The service where the agent has no name", width=104, sort="agent", filter="agent"
        ),
        "policy": Column("version", width=106, sort="policy", filter="policy"),
        "model": Column("model", width=110, is_hidden=True),
        "task": Column("task", width=104, sort="task", filter="task"),
        "reward": Column("reward", "number", width=60, form="+.2f", sort="reward"),
        "steps": Column("steps", "number", width=52, sort="steps", is_hidden=True),
        "errors": Column(
            "tool errors", "number", "Failed tool calls / all tool calls", width=86, sort="errors", is_hidden=True
        ),
        "tokens": Column("tokens", "number", width=62, sort="tokens"),
        "duration": Column("took", "number", width=68, sort="duration"),
        "decided": Column(
            "decided by", "tag", "Owner and class of the failure that decided the outcome", 170, sort="class"
        ),
        "marks": Column("marks", help="Marks and tags", width=90, is_hidden=True),
        "session": Column("session", "id", width=110, is_hidden=True),
        "id": Column("episode", "id", width=92),
    }
