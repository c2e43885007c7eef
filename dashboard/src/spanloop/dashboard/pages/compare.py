"""Compare two policy versions on the same tasks; show one task's episodes side by side."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import episode_pair, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, select_task_prefix
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.queries import policy_versions
from spanloop.dashboard.view_models.formatting import DASH, share
from spanloop.dashboard.view_models.task_changes import CHANGES, Change, choose_pair, classify_changes
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.dataset.trained_tasks import trained_tasks

_MAX_TASKS = 50
_ROWS_IN_SIGHT = 8
_LIST_HEIGHT = 270
"""In pixels; so many rows take it."""


def show(store: Store) -> None:
    """Draw two versions on the tasks that both attempted."""
    versions = [
        name
        for name in policy_versions.fetch_versions(store, 0)["policy_version"].to_list()
        if name != policy_versions.NO_VERSION
    ]
    if len(versions) < 2:
        empty_state(
            "A comparison needs two policy versions with episodes, and there "
            + (f"is only {versions[0]}." if versions else "is none yet."),
            "Train one from the other, serve it, and run the agent on the same tasks again:",
            resources.cli_command("train NAME --deploy-always --wait"),
        )
        return
    left, middle, right = st.columns(3, vertical_alignment="bottom")
    before = left.selectbox("Before", versions, index=0, key="before", bind="query-params") or versions[0]
    last = len(versions) - 1
    after = middle.selectbox("After", versions, index=last, key="after", bind="query-params") or versions[last]
    with right:
        task_prefix = select_task_prefix(store)
    if before == after:
        st.info("Choose two different versions.", icon=":material/compare_arrows:")
        return
    tasks = classify_changes(policy_versions.fetch_task_pairs(store, before, after, task_prefix))
    if tasks.is_empty():
        st.info(
            f"{escape_md(before)} and {escape_md(after)} have no task in common. Name tasks in the app with "
            "spanloop.instrumentation.task(…), and run both versions on the same ones.",
            icon=":material/compare_arrows:",
        )
        return
    _summary(tasks)
    for version in (before, after):
        _training_tasks(store, tasks, version)
    _task(store, tasks, before, after)


def _summary(tasks: pl.DataFrame) -> None:
    known = tasks.filter(pl.col("change") != Change.UNKNOWN)
    counts = {change: known.filter(pl.col("change") == change).height for change in CHANGES}
    columns = st.columns(6)
    columns[0].metric("Tasks of both", f"{tasks.height:,}")
    columns[1].metric("Success before", _percent(known["before_share"]), help="Mean over tasks")
    columns[2].metric("Success after", _percent(known["after_share"]), help="Mean over tasks")
    columns[3].metric("Better", f"{counts[Change.BETTER]:,}")
    columns[4].metric("Worse", f"{counts[Change.WORSE]:,}")
    columns[5].metric("As before", f"{counts[Change.SOLVED] + counts[Change.UNSOLVED]:,}")
    if tasks.height == policy_versions.MAX_TASKS:
        st.caption(f"Only the first {policy_versions.MAX_TASKS:,} tasks are compared.")


def _training_tasks(store: Store, tasks: pl.DataFrame, version: str) -> None:
    """Say how many of the compared tasks a version has seen in its training."""
    trained = _trained_ids(store, resources.data_dir(), version)
    seen = tasks.filter(pl.col("task_id").is_in(list(trained))).height
    if seen:
        st.warning(
            f"{escape_md(version)} was trained on {seen:,} of these {tasks.height:,} tasks.",
            icon=":material/warning:",
        )


@st.cache_resource(show_spinner=False, max_entries=20, ttl=600)
def _trained_ids(_store: Store, directory: DataDir, version: str) -> frozenset[str]:
    """Return the ids of the tasks that a version was trained on."""
    return trained_tasks(_store, directory, version).ids


def _percent(shares: pl.Series) -> str:
    mean = shares.mean()
    return share(mean) if isinstance(mean, float) else DASH


def _task(store: Store, tasks: pl.DataFrame, before: str, after: str) -> None:
    changes = [change for change in CHANGES if tasks.filter(pl.col("change") == change).height]
    # A task in the URL determines which kind of change is selected first.
    linked_task = tasks.filter(pl.col("task_id") == st.query_params.get("task", ""))
    default = Change(linked_task["change"][0]) if linked_task.height else changes[0]
    change = st.segmented_control(
        "Change", changes, default=default, key="change", label_visibility="collapsed", required=True
    )
    matching_tasks = tasks.filter(pl.col("change") == (change or default))
    task_id = st.query_params.get("task", "")
    rows = matching_tasks.filter(pl.col("task_id") == task_id) if task_id else matching_tasks
    row = (rows if rows.height else matching_tasks).row(0, named=True)
    listed = matching_tasks.head(_MAX_TASKS)
    hrefs = {
        each: address("evaluations", view="Task by task", before=before, after=after, task=each)
        for each in listed["task_id"].to_list()
    }
    # The list scrolls in its own place, so that the pair below it is in sight.
    with st.container(height=_LIST_HEIGHT if listed.height > _ROWS_IN_SIGHT else "content", border=False):
        tables.show(
            _table(listed),
            _columns(),
            list(hrefs.values()),
            key="tasks_compared",
            current=hrefs.get(row["task_id"], ""),
        )
    if matching_tasks.height > _MAX_TASKS:
        st.caption(f"The first {_MAX_TASKS} of {matching_tasks.height:,} tasks.")
    st.subheader(f"Task {escape_md(row['task_id'])}", anchor=False)
    pair = choose_pair(row)
    if pair is None:
        st.caption("Its outcome is unknown: send a reward from the app.")
        return
    episode_pair.show(store, pair)


def _table(matching_tasks: pl.DataFrame) -> pl.DataFrame:
    return matching_tasks.select(
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
        "task_id": tables.text_column("task", width=220),
        "before": tables.text_column("succeeded before", width=120),
        "after": tables.text_column("succeeded after", width=120),
        "before_reward": tables.number_column("reward before", form="+.2f", width=110),
        "after_reward": tables.number_column("reward after", form="+.2f", width=110),
        "before_error_class": tables.text_column("failure before", width=170),
        "after_error_class": tables.text_column("failure after", width=170),
    }
