"""Show how each policy version did on one set of tasks, and compare two of them."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import ClassVar, Final

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, episode_pair, evaluation_figures, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, page
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.pages import compare, rewards
from spanloop.dashboard.view_models.formatting import DASH, GREEN, share
from spanloop.evaluation.results import (
    Comparison,
    EpisodePair,
    ErrorChange,
    EvaluatedState,
    Evaluation,
    Interval,
    ToolChange,
    load_evaluations,
)
from spanloop.evaluation.results import (
    compare as compare_evaluations,
)
from spanloop.store import Store

_VIEWS: Final = ("Held out", "Task by task", "Rewards", "Training")
_IMPROVED: Final = "Failed before, succeed now"
_REGRESSED: Final = "Succeeded before, fail now"


class EvaluationsPage(Page):
    """Policy versions compared: held-out results, task by task, and rewards while training."""

    title: ClassVar[str] = "Evaluations"
    icon: ClassVar[str] = ":material/fact_check:"

    def show(self, context: PageContext) -> None:
        """Draw the view that the URL names."""
        with page(
            "Evaluations",
            "How well each policy version does. Held out: stored results on a fixed set of tasks. Task by task: two "
            "versions on the tasks that both attempted. Training: what a job did to its model.",
        ):
            default = "Training" if "job" in st.query_params else _VIEWS[0]
            view = st.segmented_control(
                "View",
                _VIEWS,
                default=default,
                key="view",
                bind="query-params",
                label_visibility="collapsed",
                required=True,
            )
            {_VIEWS[0]: _evaluations, _VIEWS[1]: compare.show, _VIEWS[2]: rewards.show_versions}.get(
                view or default, rewards.show_training
            )(context.store())


def _evaluations(store: Store) -> None:
    evaluations = load_evaluations(store)
    if not evaluations:
        empty_state(
            "No evaluation is stored yet.",
            "Run the agent on a fixed set of tasks, then measure the version that served it:",
            resources.cli_command("evaluate NAME@VERSION --run RUN"),
        )
        return
    names = sorted({evaluation.name for evaluation in evaluations})
    name = names[0]
    if len(names) > 1:
        # the options of a selection box are plain text, and those of other controls are Markdown
        name = st.selectbox("Evaluation", names, key="name", bind="query-params", width=420)
    results = [evaluation for evaluation in evaluations if evaluation.name == name]
    _results(results)
    if len(results) < 2:
        evaluation_figures.show(store, results[0])
        st.caption("Evaluate a second version under the same name to compare them.")
        return
    ids = {evaluation.model: evaluation.evaluation_id for evaluation in results}
    left, right, _ = st.columns(3)
    before = left.selectbox("Before", list(ids), index=0, key="before", bind="query-params")
    after = right.selectbox("After", list(ids), index=len(ids) - 1, key="after", bind="query-params")
    if before == after:
        st.info("Choose two different versions.", icon=":material/compare_arrows:")
        return
    _comparison(store, ids[before], ids[after])


def _results(results: list[Evaluation]) -> None:
    first = results[0]
    left, right = st.columns(2)
    success = _frame(results, [result.success for result in results])
    reward = _frame(results, [result.reward for result in results])
    charts.draw(charts.value_by_version(success, "success on tasks", is_share=True, colour=GREEN), left)
    charts.draw(charts.value_by_version(reward, "mean reward"), right)
    task_sets = sorted({evaluation.task_set for evaluation in results})
    st.caption(
        f"Tasks: {escape_md('; '.join(task_sets))}. Line: {first.level:.0%} interval, a bootstrap over tasks "
        f"({first.resamples:,} resamples)."
    )
    few = [evaluation for evaluation in results if evaluation.tasks < evaluation_figures.MIN_TASKS]
    if few:
        names = ", ".join(f"{escape_md(evaluation.model)} has {evaluation.tasks:,}" for evaluation in few)
        st.warning(
            f"Intervals over fewer than {evaluation_figures.MIN_TASKS} tasks are too narrow: {names}.",
            icon=":material/warning:",
        )
    for evaluation in results:
        if evaluation.training_tasks:
            st.warning(
                f"{evaluation.training_tasks:,} of the {evaluation.tasks:,} tasks of {escape_md(evaluation.model)} are "
                "of its training.",
                icon=":material/warning:",
            )
    tables.show(
        tables.to_frame([_row(evaluation) for evaluation in results]),
        {
            "policy": tables.text_column(width=130),
            "success": tables.text_column(width=80),
            "interval": tables.text_column("its interval", width=120),
            "reward": tables.number_column("mean reward", form="+.3f", width=100),
            "reward_interval": tables.text_column("its interval", width=140),
            "tasks": tables.number_column(form=",.0f", width=65),
            "attempts": tables.number_column(form=",.0f", width=75),
            "unscored": tables.text_column("failed without a score", help="They count as failures", width=170),
            "left_out": tables.text_column("left out", help="Attempts that do not count", width=170),
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
    failures = {state: count for state, count in evaluation.states.items() if state != EvaluatedState.SCORED}
    return {
        "policy": evaluation.model,
        "success": share(evaluation.success.value),
        "interval": evaluation.success.range_text(".1f", scale=100, unit=" %"),
        "reward": evaluation.reward.value,
        "reward_interval": evaluation.reward.range_text("+.3f"),
        "tasks": evaluation.tasks,
        "attempts": evaluation.episodes,
        "unscored": _counts(failures),
        "left_out": _counts(evaluation.left_out),
        "measured": evaluation.created_at,
    }


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items() if count) or "none"


def _comparison(store: Store, before_id: str, after_id: str) -> None:
    """Draw the differences between two stored evaluations."""
    comparison = compare_evaluations(store, before_id, after_id)
    _differences(comparison)
    evaluation_figures.show_changes(store, comparison)
    left, right = st.columns(2)
    with left:
        st.subheader("By failure class", anchor=False)
        _failure_classes(comparison)
    with right:
        st.subheader("By tool", anchor=False)
        _tools(comparison)
    _changed_tasks(store, comparison)


def _differences(comparison: Comparison) -> None:
    columns = st.columns(4)
    columns[0].metric("Tasks of both", f"{comparison.tasks:,}")
    columns[1].metric(
        "Success, after less before",
        f"{100 * comparison.success.value:+.1f} points",
        help="Mean difference over the tasks of both",
    )
    success = evaluation_figures.range_of_difference(
        comparison.success, "+.1f", tasks=comparison.tasks, scale=100, unit=" points"
    )
    columns[1].caption(success)
    columns[2].metric("Reward, after less before", f"{comparison.reward.value:+.3f}")
    columns[2].caption(evaluation_figures.range_of_difference(comparison.reward, "+.3f", tasks=comparison.tasks))
    columns[3].metric(_IMPROVED, f"{len(comparison.mended):,}", help="Tasks that succeed more often than before")
    columns[3].caption(f"{len(comparison.broken):,} the other way round")


def _failure_classes(comparison: Comparison) -> None:
    if not comparison.errors:
        st.caption("No failure in either.")
        return
    tables.show(
        tables.to_frame([_failure_class_row(change, comparison) for change in comparison.errors]),
        {
            "class": tables.text_column(width=170),
            "before": tables.text_column(help="Episodes with such a failure that was not recovered"),
            "after": tables.text_column(help="Episodes with such a failure that was not recovered"),
            "change": tables.number_column("change (points)", form="+.1f", help="Of the share of episodes"),
        },
    )


def _failure_class_row(change: ErrorChange, comparison: Comparison) -> dict[str, object]:
    before = change.before.episodes / comparison.before.episodes
    after = change.after.episodes / comparison.after.episodes
    return {
        "class": change.error_class,
        "before": f"{change.before.episodes:,} ({share(before)})",
        "after": f"{change.after.episodes:,} ({share(after)})",
        "change": 100 * (after - before),
    }


def _tools(comparison: Comparison) -> None:
    if not comparison.tools:
        st.caption("No tool was called in either.")
        return
    tables.show(
        tables.to_frame([_tool_row(change) for change in comparison.tools]),
        {
            "tool": tables.text_column(width=120),
            "failed_before": tables.text_column("failed calls before", help="Failed calls of all calls"),
            "failed_after": tables.text_column("after", help="Failed calls of all calls"),
            "success_before": tables.text_column("success before", help="Of the episodes that called it"),
            "success_after": tables.text_column("after", help="Of the episodes that called it"),
        },
    )


def _tool_row(change: ToolChange) -> dict[str, object]:
    before, after = change.before, change.after
    return {
        "tool": change.tool,
        "failed_before": f"{before.failed_calls:,} of {before.calls:,}",
        "failed_after": f"{after.failed_calls:,} of {after.calls:,}",
        "success_before": DASH if before.success is None else f"{share(before.success, 0)} of {before.episodes:,}",
        "success_after": DASH if after.success is None else f"{share(after.success, 0)} of {after.episodes:,}",
    }


def _changed_tasks(store: Store, comparison: Comparison) -> None:
    st.subheader("Tasks that changed", anchor=False)
    kinds = {_IMPROVED: comparison.mended, _REGRESSED: comparison.broken}
    present = [kind for kind, pairs in kinds.items() if pairs]
    if not present:
        st.caption("No task changed from failure to success or from success to failure.")
        return
    kind = st.segmented_control(
        "Kind", present, default=present[0], key="pair_kind", label_visibility="collapsed", required=True
    )
    pairs: dict[str, EpisodePair] = {pair.task_id: pair for pair in kinds[kind or present[0]]}
    task_id = st.selectbox(f"Task ({len(pairs):,})", list(pairs), key="pair_task", width=420)
    st.markdown(f"**{escape_md(task_id)}**, one attempt before and one after")
    episode_pair.show(store, pairs[task_id])
