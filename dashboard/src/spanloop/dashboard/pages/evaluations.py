"""Show how each policy version did on one set of tasks, and compare two of them."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, evaluation_comparison, tables
from spanloop.dashboard.components.markup import GREEN, escape_md
from spanloop.dashboard.components.page_frame import empty_state, page
from spanloop.dashboard.view_models.formatting import share
from spanloop.store import Store
from spanloop.training.evaluation import Evaluation, Interval, load_evaluations


def render() -> None:
    """Draw the page."""
    with page("Evaluations", "The stored results of each policy version on the same set of tasks."):
        _evaluations(resources.store())


def _evaluations(store: Store) -> None:
    evaluations = load_evaluations(store)
    if not evaluations:
        empty_state(
            "No evaluation is stored yet.",
            "Run the agent on a fixed set of tasks, then measure the version that served it:",
            resources.cli_command("evaluate NAME@VERSION --task-prefix test-"),
        )
        return
    names = sorted({evaluation.name for evaluation in evaluations})
    name = names[0]
    if len(names) > 1:
        name = st.segmented_control(
            "Evaluation", names, default=names[0], key="name", bind="query-params", required=True
        )
    results = [evaluation for evaluation in evaluations if evaluation.name == name]
    _results(results)
    if len(results) < 2:
        st.caption("Evaluate a second version under the same name to compare them.")
        return
    ids = {evaluation.model: evaluation.evaluation_id for evaluation in results}
    left, right, _ = st.columns(3)
    before = left.selectbox("Before", list(ids), index=0, key="before", bind="query-params")
    after = right.selectbox("After", list(ids), index=len(ids) - 1, key="after", bind="query-params")
    if before == after:
        st.info("Choose two different versions.", icon=":material/compare_arrows:")
        return
    evaluation_comparison.show(store, ids[before], ids[after])


def _results(results: list[Evaluation]) -> None:
    first = results[0]
    left, right = st.columns(2)
    left.altair_chart(
        charts.value_by_version(
            _frame(results, [result.success for result in results]),
            "success on tasks",
            is_share=True,
            colour=GREEN,
        )
    )
    right.altair_chart(charts.value_by_version(_frame(results, [result.reward for result in results]), "mean reward"))
    task_sets = sorted({evaluation.task_set for evaluation in results})
    st.caption(
        f"Tasks: {escape_md('; '.join(task_sets))}. Line: {first.level:.0%} interval, a bootstrap over tasks "
        f"({first.resamples:,} resamples)."
    )
    tables.show(
        tables.to_frame([_row(evaluation) for evaluation in results]),
        {
            "policy": TextColumn(width=130),
            "success": TextColumn(width=80),
            "interval": TextColumn("its interval", width=120),
            "reward": NumberColumn("mean reward", format="%+.3f", width=100),
            "reward_interval": TextColumn("its interval", width=140),
            "tasks": NumberColumn(format="localized", width=65),
            "episodes": NumberColumn(format="localized", width=75),
            "left_out": TextColumn("episodes left out", width=170),
            "measured": tables.time_column("measured"),
        },
    )


def _frame(results: list[Evaluation], intervals: list[Interval]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "policy_version": [evaluation.model for evaluation in results],
            "value": [interval.value for interval in intervals],
            "low": [interval.low for interval in intervals],
            "high": [interval.high for interval in intervals],
            "episodes": [evaluation.episodes for evaluation in results],
        }
    )


def _row(evaluation: Evaluation) -> dict[str, object]:
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in evaluation.left_out.items() if count)
    return {
        "policy": evaluation.model,
        "success": share(evaluation.success.value),
        "interval": f"{share(evaluation.success.low)} to {share(evaluation.success.high)}",
        "reward": evaluation.reward.value,
        "reward_interval": f"{evaluation.reward.low:+.3f} to {evaluation.reward.high:+.3f}",
        "tasks": evaluation.tasks,
        "episodes": evaluation.episodes,
        "left_out": left_out or "none",
        "measured": evaluation.created_at,
    }


render()
