"""Two policy versions at the same tasks: what changed, and one task's episodes side by side."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import episode_pair as pair_view
from spanloop.dashboard.components import tables
from spanloop.dashboard.components.markup import plain
from spanloop.dashboard.components.page_frame import nothing_yet, page, task_set
from spanloop.dashboard.queries import policy_versions as version_reads
from spanloop.dashboard.view_models.formatting import DASH, share
from spanloop.dashboard.view_models.task_changes import CHANGES, Change, pair_of, with_changes
from spanloop.store import Store


def render() -> None:
    """Draw the page."""
    with page("Compare", "Two policy versions at the tasks that both attempted. Click a task to see both episodes."):
        _compare(resources.store())


def _compare(store: Store) -> None:
    versions = [
        name
        for name in version_reads.policy_versions(store, 0)["policy_version"].to_list()
        if name != version_reads.NO_VERSION
    ]
    if len(versions) < 2:
        nothing_yet(
            "A comparison needs two policy versions that acted, and there "
            + (f"is only {versions[0]}." if versions else "is none yet."),
            "Train one from the other, serve it, and let the agent try the same tasks again:",
            resources.command("train NAME --deploy --wait"),
        )
        return
    left, right, third = st.columns(3, vertical_alignment="bottom")
    before = left.selectbox("Before", versions, index=0, key="before", bind="query-params") or versions[0]
    last = len(versions) - 1
    after = right.selectbox("After", versions, index=last, key="after", bind="query-params") or versions[last]
    with third:
        tasks = task_set(store)
    if before == after:
        st.info("Choose two different versions.", icon=":material/compare_arrows:")
        return
    found = with_changes(version_reads.task_pairs(store, before, after, tasks))
    if found.is_empty():
        st.info(
            f"{plain(before)} and {plain(after)} have no task in common: an app names its tasks with "
            "spanloop.instrumentation.task(…), and both versions have to try the same ones.",
            icon=":material/compare_arrows:",
        )
        return
    _summary(found)
    _one(store, found)


def _summary(found: pl.DataFrame) -> None:
    known = found.filter(pl.col("change") != Change.UNKNOWN)
    counts = {change: known.filter(pl.col("change") == change).height for change in CHANGES}
    columns = st.columns(6)
    columns[0].metric("Tasks of both", f"{found.height:,}")
    columns[1].metric("Success before", _percent(known["before_share"]), help="Mean over tasks")
    columns[2].metric("Success after", _percent(known["after_share"]), help="Mean over tasks")
    columns[3].metric("Better", f"{counts[Change.BETTER]:,}")
    columns[4].metric("Worse", f"{counts[Change.WORSE]:,}")
    columns[5].metric("As before", f"{counts[Change.SOLVED] + counts[Change.UNSOLVED]:,}")
    if found.height == version_reads.MAX_TASKS:
        st.caption(f"Only the first {version_reads.MAX_TASKS:,} tasks are compared.")


def _percent(shares: pl.Series) -> str:
    mean = shares.mean()
    return share(mean) if isinstance(mean, float) else DASH


def _one(store: Store, found: pl.DataFrame) -> None:
    present = [change for change in CHANGES if found.filter(pl.col("change") == change).height]
    # A task that the address names decides which kind is shown first.
    asked = found.filter(pl.col("task_id") == st.query_params.get("task", ""))
    default = Change(asked["change"][0]) if asked.height else present[0]
    change = st.segmented_control(
        "Change", present, default=default, key="change", label_visibility="collapsed", required=True
    )
    shown = found.filter(pl.col("change") == (change or default))
    picked = tables.pick_row(
        _table(shown), shown["task_id"].to_list(), key="tasks_compared", columns=_columns(), at_most=6
    )
    if picked:
        st.query_params["task"] = picked
    task_id = st.query_params.get("task", "")
    rows = shown.filter(pl.col("task_id") == task_id) if task_id else shown
    row = (rows if rows.height else shown).row(0, named=True)
    st.subheader(f"Task {plain(row['task_id'])}", anchor=False)
    pair = pair_of(row)
    if pair is None:
        st.caption("No outcome of it is known: an app tells it by sending a reward.")
        return
    pair_view.show(store, pair)


def _table(shown: pl.DataFrame) -> pl.DataFrame:
    return shown.select(
        "task_id",
        pl.format("{} of {}", "before_successes", "before_episodes").alias("before"),
        pl.format("{} of {}", "after_successes", "after_episodes").alias("after"),
        "before_reward",
        "after_reward",
        "before_error_class",
        "after_error_class",
    )


def _columns() -> tables.Columns:
    return {
        "task_id": TextColumn("task", width=220),
        "before": TextColumn("succeeded before", width=120),
        "after": TextColumn("succeeded after", width=120),
        "before_reward": NumberColumn("reward before", format="%+.2f", width=110),
        "after_reward": NumberColumn("reward after", format="%+.2f", width=110),
        "before_error_class": TextColumn("failed before by", width=170),
        "after_error_class": TextColumn("fails now by", width=170),
    }


render()
