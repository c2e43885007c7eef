"""Draw two episodes of one task in two columns: conversation, failures and rewards."""
# pyright: reportUnknownMemberType=false

from dataclasses import replace
from typing import Final

import polars as pl
import streamlit as st

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.chat import show_conversation
from spanloop.dashboard.components.episode_detail import show_failure_cards, step_errors
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import link_back, linked_page
from spanloop.dashboard.queries import episodes
from spanloop.dashboard.view_models.formatting import short_id, signed
from spanloop.evaluation.results import EpisodePair
from spanloop.store import Store

_MAX_STEPS: Final = 30
_OUTCOMES: Final = {"success": ":green[✓ success]", "failure": ":red[✕ failure]"}


def show(store: Store, pair: EpisodePair) -> None:
    """Draw both episodes, or a warning when one is no longer stored."""
    _show(store, pair.before_episode_id, pair.after_episode_id, ("Before", "After"))


def show_two(store: Store, left_id: str, right_id: str) -> None:
    """Draw two episodes of a reader's choice."""
    link_back("episodes", "All episodes")
    _show(store, left_id, right_id, ("Left", "Right"))


def _show(store: Store, left_id: str, right_id: str, titles: tuple[str, str]) -> None:
    pair_episodes = {each: episodes.fetch_episode(store, each) for each in (left_id, right_id)}
    missing = [each for each, episode in pair_episodes.items() if episode is None or episode.is_deleted]
    if missing:
        st.warning(
            f"The store has no episode {escape_md(', '.join(missing))}; a new conversion may have replaced it.",
            icon=":material/merge:",
        )
    before, after = pair_episodes[left_id], pair_episodes[right_id]
    if before is None or after is None or missing:
        return
    if before.reward_breakdown or after.reward_breakdown:
        _reward_components(before, after, titles)
    for column, title, episode in zip(st.columns(2, gap="medium"), titles, (before, after), strict=True):
        with column:
            _summary(store, title, episode)
    # New columns, so that both conversations begin at the same height.
    for column, episode in zip(st.columns(2, gap="medium"), (before, after), strict=True):
        with column:
            _conversation(store, episode)


def _reward_components(before: episodes.Episode, after: episodes.Episode, titles: tuple[str, str]) -> None:
    names = sorted(before.reward_breakdown | after.reward_breakdown)
    rows = [(name, before.reward_breakdown.get(name), after.reward_breakdown.get(name)) for name in names]
    if names != ["reward"]:
        rows.append(("the episode's reward", before.reward, after.reward))
    frame = pl.DataFrame(
        rows, schema={"component": pl.String, "before": pl.Float64, "after": pl.Float64}, orient="row"
    ).with_columns((pl.col("after") - pl.col("before")).alias("difference"))
    number = tables.number_column(form="+.3f")
    left, right = (title.lower() for title in titles)
    columns = {"before": replace(number, label=left), "after": replace(number, label=right), "difference": number}
    tables.show(frame, columns)


def _summary(store: Store, title: str, episode: episodes.Episode) -> None:
    st.subheader(f"{title}: {escape_md(episode.policy_version)}", anchor=False)
    facts = [
        _OUTCOMES.get(episode.outcome, ":gray[unknown outcome]"),
        f"task **{escape_md(episode.task_id)}**" if episode.task_id else "",
        f"reward **{signed(episode.reward)}**",
        f"{episode.step_count} step{'' if episode.step_count == 1 else 's'}",
        f"{episode.tool_error_count} of {episode.tool_call_count} tool calls failed",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    st.page_link(
        linked_page("episodes"),
        label=f"Episode {escape_md(short_id(episode.episode_id))}",
        icon=":material/open_in_new:",
        query_params={"episode": episode.episode_id},
    )
    if not show_failure_cards(store, episode):
        st.caption("No failure was found in it.")


def _conversation(store: Store, episode: episodes.Episode) -> None:
    if episode.step_count:
        show_conversation(
            episodes.fetch_step_records(store, episode, 0, _MAX_STEPS - 1), 0, step_errors(store, episode)
        )
    if episode.step_count > _MAX_STEPS:
        st.caption(f"Only the first {_MAX_STEPS} of {episode.step_count} steps are shown.")
