"""Two evaluations beside each other: the paired difference, tools, failure classes, and tasks that changed."""
# pyright: reportUnknownMemberType=false

from typing import Final

import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard.components import episode_pair as pair_view
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.view_models.formatting import DASH, share
from spanloop.store import Store
from spanloop.training.evaluation import Comparison, EpisodePair, ErrorChange, Interval, ToolChange, compare

_MENDED: Final = "Failed before, succeed now"
_BROKEN: Final = "Succeeded before, fail now"


def comparison(store: Store, before_id: str, after_id: str) -> None:
    """Draw what changed from one stored evaluation to another.

    Raises:
        EvaluationError: One is gone, or they have no task in common.
    """
    found = compare(store, before_id, after_id)
    _differences(found)
    left, right = st.columns(2)
    with left:
        st.subheader("By failure class", anchor=False)
        _errors(found)
    with right:
        st.subheader("By tool", anchor=False)
        _tools(found)
    _pairs(store, found)


def _differences(found: Comparison) -> None:
    columns = st.columns(4)
    columns[0].metric("Tasks of both", f"{found.tasks:,}")
    columns[1].metric(
        "Success, after less before",
        f"{100 * found.success.value:+.1f} points",
        help="Mean over the tasks of both of the difference",
    )
    columns[1].caption(_doubt(found.success, 100, "points"))
    columns[2].metric("Reward, after less before", f"{found.reward.value:+.3f}")
    columns[2].caption(_doubt(found.reward, 1, ""))
    columns[3].metric(_MENDED, f"{len(found.mended):,}", help="Tasks that succeed more often than before")
    columns[3].caption(f"{len(found.broken):,} the other way round")


def _doubt(interval: Interval, scale: float, unit: str) -> str:
    digits = 1 if scale > 1 else 3
    span = f"{scale * interval.low:+.{digits}f} to {scale * interval.high:+.{digits}f} {unit}".strip()
    return span if interval.excludes_zero else f"{span}: may be chance"


def _errors(found: Comparison) -> None:
    if not found.errors:
        st.caption("No failure in either.")
        return
    tables.show(
        tables.frame([_error_row(each, found) for each in found.errors]),
        {
            "class": TextColumn(width=170),
            "before": TextColumn(help="Episodes with such a failure that was not recovered"),
            "after": TextColumn(help="Episodes with such a failure that was not recovered"),
            "change": NumberColumn("change (points)", format="%+.1f", help="Of the share of episodes"),
        },
    )


def _error_row(each: ErrorChange, found: Comparison) -> dict[str, object]:
    before = each.before.episodes / found.before.episodes
    after = each.after.episodes / found.after.episodes
    return {
        "class": each.error_class,
        "before": f"{each.before.episodes:,} ({share(before)})",
        "after": f"{each.after.episodes:,} ({share(after)})",
        "change": 100 * (after - before),
    }


def _tools(found: Comparison) -> None:
    if not found.tools:
        st.caption("No tool was called in either.")
        return
    tables.show(
        tables.frame([_tool_row(each) for each in found.tools]),
        {
            "tool": TextColumn(width=120),
            "failed_before": TextColumn("failed calls before", help="Failed calls of all calls"),
            "failed_after": TextColumn("after", help="Failed calls of all calls"),
            "success_before": TextColumn("success before", help="Of the episodes that called it"),
            "success_after": TextColumn("after", help="Of the episodes that called it"),
        },
    )


def _tool_row(each: ToolChange) -> dict[str, object]:
    before, after = each.before, each.after
    return {
        "tool": each.tool,
        "failed_before": f"{before.failed_calls:,} of {before.calls:,}",
        "failed_after": f"{after.failed_calls:,} of {after.calls:,}",
        "success_before": DASH if before.success is None else f"{share(before.success, 0)} of {before.episodes:,}",
        "success_after": DASH if after.success is None else f"{share(after.success, 0)} of {after.episodes:,}",
    }


def _pairs(store: Store, found: Comparison) -> None:
    st.subheader("Tasks that changed", anchor=False)
    kinds = {_MENDED: found.mended, _BROKEN: found.broken}
    present = [kind for kind, pairs in kinds.items() if pairs]
    if not present:
        st.caption("No task went from failure to success, or the other way round.")
        return
    kind = st.segmented_control(
        "Kind", present, default=present[0], key="pair_kind", label_visibility="collapsed", required=True
    )
    pairs: dict[str, EpisodePair] = {pair.task_id: pair for pair in kinds[kind or present[0]]}
    task_id = st.selectbox(f"Task ({len(pairs):,})", list(pairs), key="pair_task", width=420)
    st.markdown(f"**{plain(task_id)}**, one attempt before and one after")
    pair_view.show(store, pairs[task_id])
