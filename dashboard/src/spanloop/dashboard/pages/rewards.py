"""Does it learn? What the episodes of each policy version earned, whole and by component, and training curves."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st
from streamlit.column_config import NumberColumn, TextColumn

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components.markup import GREEN, plain
from spanloop.dashboard.components.page_frame import nothing_yet, page, task_set
from spanloop.dashboard.queries import episodes as reads
from spanloop.dashboard.queries import policy_versions as version_reads
from spanloop.dashboard.view_models.series import choose_metrics
from spanloop.dashboard.view_models.version_statistics import component_means, with_intervals
from spanloop.store import Store

_MAX_VERSIONS = 12
_MAX_COMPONENTS = 12
_CHARTS_IN_A_ROW = 3


def render() -> None:
    """Draw the page; who comes for one job's curves sees them first."""
    with page("Rewards"):
        store = resources.store()
        parts = [_episodes, _training]
        for part in reversed(parts) if "job" in st.query_params else parts:
            part(store)


def _episodes(store: Store) -> None:
    st.subheader("In episodes, by policy version", anchor=False)
    tasks = task_set(store)
    versions = with_intervals(version_reads.policy_versions(store, 0, tasks)).tail(_MAX_VERSIONS)
    if versions.is_empty() or not int(versions["rewarded"].sum()):
        nothing_yet(
            "No episode has a reward yet.",
            "Send one from your app with spanloop.instrumentation.reward(1.0), then convert:",
            resources.command("convert"),
        )
        return
    left, right = st.columns(2)
    left.altair_chart(
        charts.by_version(_value(versions, "success", "rated"), "success rate", is_share=True, colour=GREEN)
    )
    right.altair_chart(charts.by_version(_value(versions, "reward", "rewarded"), "mean reward"))
    st.caption("Versions in the order in which they first acted. Line: 95 % interval over episodes.")
    tables.show(
        versions.select(
            "policy_version",
            "episodes",
            "successes",
            "failures",
            (100 * pl.col("success")).alias("success"),
            "rewarded",
            "reward",
            "reward_stddev",
            "first_seen",
            "last_seen",
        ),
        {
            "policy_version": TextColumn("policy"),
            "success": NumberColumn("success rate", format="%.1f %%"),
            "rewarded": NumberColumn("with reward"),
            "reward": NumberColumn("mean reward", format="%+.3f"),
            "reward_stddev": NumberColumn("std. deviation", format="%.3f"),
            "first_seen": tables.when("first seen"),
            "last_seen": tables.when("last seen"),
        },
    )
    _components(
        component_means(versions, version_reads.reward_components(store, versions["policy_version"].to_list(), tasks))
    )


def _value(versions: pl.DataFrame, name: str, count: str) -> pl.DataFrame:
    return versions.select(
        "policy_version",
        pl.col(name).alias("value"),
        pl.col(f"{name}_low").alias("low"),
        pl.col(f"{name}_high").alias("high"),
        pl.col(count).alias("episodes"),
    )


def _components(means: pl.DataFrame) -> None:
    st.subheader("What the reward is made of", anchor=False)
    if means.is_empty():
        st.caption("No score of a name of its own was sent: the reward has no components.")
        return
    names = means["component"].unique().sort().to_list()
    for first in range(0, min(len(names), _MAX_COMPONENTS), _CHARTS_IN_A_ROW):
        columns = st.columns(_CHARTS_IN_A_ROW)
        for column, name in zip(columns, names[first : first + _CHARTS_IN_A_ROW], strict=False):
            column.markdown(f"**{plain(name)}**")
            column.altair_chart(charts.by_version(means.filter(pl.col("component") == name), "mean", height=170))
    if len(names) > _MAX_COMPONENTS:
        st.caption(f"{len(names) - _MAX_COMPONENTS} more components are not drawn.")


def _training(store: Store) -> None:
    st.subheader("While training", anchor=False)
    jobs = reads.metric_jobs(store)
    if jobs.is_empty():
        nothing_yet("No training metric yet.", "A job writes them at every step:", resources.command("train NAME"))
        return
    ids: list[str] = jobs["job_id"].to_list()
    labels = _job_labels(ids)
    asked = st.query_params.get("job", "")
    default = [asked] if asked in labels else ids[:1]
    chosen: list[str] = st.multiselect("Jobs", ids, default=default, format_func=lambda job_id: labels[job_id])
    if not chosen:
        st.caption("Choose a job.")
        return
    names = reads.metric_names(store, chosen)
    choice = choose_metrics(names)
    if choice.reward:
        _curve(store, chosen, labels, choice.reward, is_tall=True)
    else:
        st.caption("These jobs recorded no reward: supervised training has none.")
    others: list[str] = st.multiselect(
        "Other metrics", [name for name in names if name != choice.reward], default=list(choice.others)
    )
    columns = st.columns(2)
    for index, name in enumerate(others):
        with columns[index % 2]:
            _curve(store, chosen, labels, name)


def _curve(store: Store, job_ids: list[str], labels: dict[str, str], name: str, *, is_tall: bool = False) -> None:
    frame = reads.metrics(store, job_ids, [name])
    shown = frame.select(pl.col("job_id").replace(labels).alias("job"), "step", "value").filter(
        pl.col("value").is_finite()
    )
    if shown.is_empty():
        st.caption(f"{name}: no finite value.")
        return
    st.altair_chart(charts.metric_by_step(shown, name, is_tall=is_tall))


def _job_labels(ids: list[str]) -> dict[str, str]:
    """What a person calls a job: its kind, base and id; only the id when the control database has forgotten it."""
    known = {job.id: job for job in resources.job_api().list()}
    return {
        job_id: f"{known[job_id].spec.kind} {known[job_id].spec.base} → {known[job_id].model_version or '…'} ({job_id})"
        if job_id in known
        else job_id
        for job_id in ids
    }


render()
