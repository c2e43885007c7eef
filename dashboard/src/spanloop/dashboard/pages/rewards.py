"""Show rewards and their components for each policy version, and the curves of training jobs."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, page, select_task_prefix
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.queries import policy_versions, training_jobs
from spanloop.dashboard.view_models.formatting import GREEN
from spanloop.dashboard.view_models.jobs import stage_settings
from spanloop.dashboard.view_models.series import choose_metrics
from spanloop.dashboard.view_models.version_statistics import component_means, with_intervals
from spanloop.store import Store
from spanloop.training.jobs.training_ids import job_of
from spanloop.training.run.job_api import Job

_MAX_VERSIONS = 12
_MAX_COMPONENTS = 12
_CHARTS_IN_A_ROW = 3


class RewardsPage(Page):
    """Rewards over time, and the curves of training jobs."""

    title: ClassVar[str] = "Rewards"
    icon: ClassVar[str] = ":material/trending_up:"

    def show(self, context: PageContext) -> None:
        """Draw the page; a link to one job puts the training curves first."""
        with page("Rewards"):
            store = context.store()
            parts = [_episodes, _training]
            for part in reversed(parts) if "job" in st.query_params else parts:
                part(store)


def _episodes(store: Store) -> None:
    st.subheader("In episodes, by policy version", anchor=False)
    task_prefix = select_task_prefix(store)
    versions = with_intervals(policy_versions.fetch_versions(store, 0, task_prefix)).tail(_MAX_VERSIONS)
    if versions.is_empty() or not int(versions["rewarded"].sum()):
        empty_state(
            "No episode has a reward yet.",
            "Send one from your app with spanloop.instrumentation.reward(1.0), then convert:",
            resources.cli_command("convert"),
        )
        return
    left, right = st.columns(2)
    left.altair_chart(
        charts.value_by_version(_value(versions, "success", "rated"), "success rate", is_share=True, colour=GREEN)
    )
    right.altair_chart(charts.value_by_version(_value(versions, "reward", "rewarded"), "mean reward"))
    st.caption("Versions in order of their first episode. Line: 95 % interval over episodes.")
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
            "policy_version": tables.text_column("policy"),
            "success": tables.number_column("success rate", form=".1f"),
            "rewarded": tables.number_column("with reward"),
            "reward": tables.number_column("mean reward", form="+.3f"),
            "reward_stddev": tables.number_column("std. deviation", form=".3f"),
            "first_seen": tables.time_column("first seen"),
            "last_seen": tables.time_column("last seen"),
        },
    )
    _components(
        component_means(
            versions, policy_versions.fetch_reward_components(store, versions["policy_version"].to_list(), task_prefix)
        )
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
    st.subheader("Components of the reward", anchor=False)
    if means.is_empty():
        st.caption("The app sent no named score, so the reward has no components.")
        return
    names = means["component"].unique().sort().to_list()
    for first in range(0, min(len(names), _MAX_COMPONENTS), _CHARTS_IN_A_ROW):
        columns = st.columns(_CHARTS_IN_A_ROW)
        for column, name in zip(columns, names[first : first + _CHARTS_IN_A_ROW], strict=False):
            column.markdown(f"**{escape_md(name)}**")
            column.altair_chart(charts.value_by_version(means.filter(pl.col("component") == name), "mean", height=170))
    if len(names) > _MAX_COMPONENTS:
        st.caption(f"{len(names) - _MAX_COMPONENTS} more components are not drawn.")


def _training(store: Store) -> None:
    st.subheader("While training", anchor=False)
    jobs = training_jobs.fetch_metric_jobs(store)
    if jobs.is_empty():
        empty_state("No training metric yet.", "A job writes them at every step:", resources.cli_command("train NAME"))
        return
    ids: list[str] = jobs["job_id"].to_list()
    labels = _job_labels(ids)
    linked_job = st.query_params.get("job", "")
    default = [linked_job] if linked_job in labels else ids[:1]
    selected_jobs: list[str] = st.multiselect("Jobs", ids, default=default, format_func=lambda job_id: labels[job_id])
    if not selected_jobs:
        st.caption("Choose a job.")
        return
    names = training_jobs.fetch_metric_names(store, selected_jobs)
    choice = choose_metrics(names)
    if choice.reward:
        st.caption("Stored reward of each batch's rows: what the data earned when it was sampled, not the new policy.")
        _curve(store, selected_jobs, labels, choice.reward, is_tall=True)
    else:
        st.caption("These jobs recorded no reward: supervised training has none.")
    other_metrics: list[str] = st.multiselect(
        "Other metrics", [name for name in names if name != choice.reward], default=list(choice.others)
    )
    columns = st.columns(2)
    for index, name in enumerate(other_metrics):
        with columns[index % 2]:
            _curve(store, selected_jobs, labels, name)


def _curve(store: Store, job_ids: list[str], labels: dict[str, str], name: str, *, is_tall: bool = False) -> None:
    frame = training_jobs.fetch_metrics(store, job_ids, [name])
    points = frame.select(pl.col("job_id").replace(labels).alias("job"), "step", "value").filter(
        pl.col("value").is_finite()
    )
    if points.is_empty():
        st.caption(f"{escape_md(name)}: no finite value.")
        return
    st.altair_chart(charts.metric_by_step(points, name, is_tall=is_tall))


def _job_labels(ids: list[str]) -> dict[str, str]:
    """Return a label for each job or stage: recipe, base, result and id; only the id when the job is not stored."""
    jobs = {job.id: job for job in resources.job_api().list()}
    return {
        training: _job_label(jobs[job_of(training)], training) if job_of(training) in jobs else training
        for training in ids
    }


def _job_label(job: Job, training: str) -> str:
    name = stage_settings(job, training).recipe.title
    return f"{name} {job.spec.base} → {job.model_version or '…'} ({training})"
