"""Evaluations: how each policy version did on one set of tasks, and what changed from one to another."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components import evaluation_comparison as evaluation_view
from spanloop.dashboard.components.markup import GREEN, plain
from spanloop.dashboard.components.page_frame import nothing_yet, page
from spanloop.dashboard.view_models.formatting import share
from spanloop.store import Store
from spanloop.training.evaluation import Evaluation, Interval, load_evaluations


def render() -> None:
    """Draw the page."""
    with page("Evaluations", "How each policy version did on the same set of tasks, as it was measured and stored."):
        _evaluations(resources.store())


def _evaluations(store: Store) -> None:
    stored = load_evaluations(store)
    if not stored:
        nothing_yet(
            "No evaluation is stored yet.",
            "Let the agent try a fixed set of tasks, then measure the version that answered:",
            resources.command("evaluate NAME@VERSION --task-prefix test-"),
        )
        return
    names = sorted({each.name for each in stored})
    name = names[0]
    if len(names) > 1:
        name = st.segmented_control(
            "Evaluation", names, default=names[0], key="name", bind="query-params", required=True
        )
    shown = [each for each in stored if each.name == name]
    _figures(shown)
    if len(shown) < 2:
        st.caption("A second version under the same name makes a comparison.")
        return
    ids = {each.model: each.evaluation_id for each in shown}
    left, right, _ = st.columns(3)
    before = left.selectbox("Before", list(ids), index=0, key="before", bind="query-params")
    after = right.selectbox("After", list(ids), index=len(ids) - 1, key="after", bind="query-params")
    if before == after:
        st.info("Choose two different versions.", icon=":material/compare_arrows:")
        return
    evaluation_view.comparison(store, ids[before], ids[after])


def _figures(shown: list[Evaluation]) -> None:
    first = shown[0]
    left, right = st.columns(2)
    left.altair_chart(
        charts.by_version(
            _frame(shown, [each.success for each in shown]), "success on tasks", is_share=True, colour=GREEN
        )
    )
    right.altair_chart(charts.by_version(_frame(shown, [each.reward for each in shown]), "mean reward"))
    sets = sorted({each.task_set for each in shown})
    st.caption(
        f"Tasks: {plain('; '.join(sets))}. Line: {first.level:.0%} interval, a bootstrap over tasks "
        f"({first.resamples:,} resamples)."
    )
    tables.show(
        tables.frame([_row(each) for each in shown]),
        {
            "policy": TextColumn(width=130),
            "success": TextColumn(width=80),
            "interval": TextColumn("its interval", width=120),
            "reward": NumberColumn("mean reward", format="%+.3f", width=100),
            "reward_interval": TextColumn("its interval", width=140),
            "tasks": NumberColumn(format="localized", width=65),
            "episodes": NumberColumn(format="localized", width=75),
            "left_out": TextColumn("episodes left out", width=170),
            "measured": tables.when("measured"),
        },
    )


def _frame(shown: list[Evaluation], intervals: list[Interval]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "policy_version": [each.model for each in shown],
            "value": [interval.value for interval in intervals],
            "low": [interval.low for interval in intervals],
            "high": [interval.high for interval in intervals],
            "episodes": [each.episodes for each in shown],
        }
    )


def _row(each: Evaluation) -> dict[str, object]:
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in each.left_out.items() if count)
    return {
        "policy": each.model,
        "success": share(each.success.value),
        "interval": f"{share(each.success.low)} to {share(each.success.high)}",
        "reward": each.reward.value,
        "reward_interval": f"{each.reward.low:+.3f} to {each.reward.high:+.3f}",
        "tasks": each.tasks,
        "episodes": each.episodes,
        "left_out": left_out or "none",
        "measured": each.created_at,
    }


render()
