"""Draw two evaluations beside each other: paired differences, failure classes, tools, and tasks that changed."""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard.components import episode_pair, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.view_models.formatting import DASH, share
from spanloop.store import Store
from spanloop.training.evaluation import Comparison, EpisodePair, ErrorChange, Interval, ToolChange, compare

_FIXED: Final = "Failed before, succeed now"
_BROKEN: Final = "Succeeded before, fail now"


def show(store: Store, before_id: str, after_id: str) -> None:
    """Draw the differences between two stored evaluations.

    Raises:
        EvaluationError: An evaluation is not stored, or they share no task.
    """
    comparison = compare(store, before_id, after_id)
    _differences(comparison)
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
    columns[1].caption(_interval_text(comparison.success, 100, "points"))
    columns[2].metric("Reward, after less before", f"{comparison.reward.value:+.3f}")
    columns[2].caption(_interval_text(comparison.reward, 1, ""))
    columns[3].metric(_FIXED, f"{len(comparison.improved):,}", help="Tasks that succeed more often than before")
    columns[3].caption(f"{len(comparison.regressed):,} the other way round")


def _interval_text(interval: Interval, scale: float, unit: str) -> str:
    digits = 1 if scale > 1 else 3
    text = f"{scale * interval.low:+.{digits}f} to {scale * interval.high:+.{digits}f} {unit}".strip()
    return text if interval.excludes_zero else f"{text}: may be chance"


def _failure_classes(comparison: Comparison) -> None:
    if not comparison.errors:
        st.caption("No failure in either.")
        return
    tables.show(
        tables.to_frame([_failure_class_row(change, comparison) for change in comparison.errors]),
        {
            "class": TextColumn(width=170),
            "before": TextColumn(help="Episodes with such a failure that was not recovered"),
            "after": TextColumn(help="Episodes with such a failure that was not recovered"),
            "change": NumberColumn("change (points)", format="%+.1f", help="Of the share of episodes"),
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
            "tool": TextColumn(width=120),
            "failed_before": TextColumn("failed calls before", help="Failed calls of all calls"),
            "failed_after": TextColumn("after", help="Failed calls of all calls"),
            "success_before": TextColumn("success before", help="Of the episodes that called it"),
            "success_after": TextColumn("after", help="Of the episodes that called it"),
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
    kinds = {_FIXED: comparison.improved, _BROKEN: comparison.regressed}
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
