"""Two episodes of one task in two columns: what was said and done, what failed, what it earned."""
# pyright: reportUnknownMemberType=false

from typing import Final

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.chat import chat
from spanloop.dashboard.components.episode import failure_cards
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.view_models.formatting import signed
from spanloop.store import Store
from spanloop.training.evaluation import EpisodePair

_MAX_STEPS: Final = 30
_OUTCOMES: Final = {"success": ":green[✓ success]", "failure": ":red[✕ failure]"}


def show(store: Store, pair: EpisodePair) -> None:
    """Draw both episodes; one that is gone by now is said to be."""
    heads = [reads.episode(store, episode_id) for episode_id in (pair.before_episode_id, pair.after_episode_id)]
    before, after = (None if head is None or head.is_deleted else head for head in heads)
    if before is None or after is None:
        st.warning("An episode of this pair was converted again into another one; reload.", icon=":material/merge:")
        return
    if before.reward_breakdown or after.reward_breakdown:
        _components(before, after)
    for column, title, head in zip(st.columns(2, gap="medium"), ("Before", "After"), (before, after), strict=True):
        with column:
            _head(store, title, head)
    # Columns of their own, so that both conversations begin at one height.
    for column, head in zip(st.columns(2, gap="medium"), (before, after), strict=True):
        with column:
            _conversation(store, head)


def _components(before: reads.Episode, after: reads.Episode) -> None:
    names = sorted(before.reward_breakdown | after.reward_breakdown)
    rows = [(name, before.reward_breakdown.get(name), after.reward_breakdown.get(name)) for name in names]
    rows.append(("the episode's reward", before.reward, after.reward))
    frame = pl.DataFrame(
        rows, schema={"component": pl.String, "before": pl.Float64, "after": pl.Float64}, orient="row"
    ).with_columns((pl.col("after") - pl.col("before")).alias("difference"))
    number = NumberColumn(format="%+.3f")
    tables.show(frame, {"before": number, "after": number, "difference": number})


def _head(store: Store, title: str, head: reads.Episode) -> None:
    st.subheader(f"{title}: {plain(head.policy_version)}", anchor=False)
    facts = [
        _OUTCOMES.get(head.outcome, ":gray[unknown outcome]"),
        f"reward **{signed(head.reward)}**",
        f"{head.step_count} steps",
        f"{head.tool_error_count} of {head.tool_call_count} tool calls failed",
    ]
    st.markdown(" · ".join(facts))
    st.page_link(
        "../pages/episodes.py",
        label="The whole episode",
        icon=":material/open_in_new:",
        query_params={"episode": head.episode_id},
    )
    if not failure_cards(store, head):
        st.caption("No failure was found in it.")


def _conversation(store: Store, head: reads.Episode) -> None:
    if head.step_count:
        chat(reads.step_records(store, head, 0, _MAX_STEPS - 1), 0)
    if head.step_count > _MAX_STEPS:
        st.caption(f"Only the first {_MAX_STEPS} of {head.step_count} steps are shown.")
