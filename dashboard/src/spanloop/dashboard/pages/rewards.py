"""Show rewards and their components for each policy version, and the curves of training jobs."""
# pyright: reportUnknownMemberType=false

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import charts, tables
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import empty_state, select_task_prefix
from spanloop.dashboard.queries import policy_versions, training_jobs
from spanloop.dashboard.view_models.formatting import GREEN, share
from spanloop.dashboard.view_models.jobs import stage_settings
from spanloop.dashboard.view_models.series import choose_metrics, metric_help, metric_title
from spanloop.dashboard.view_models.version_statistics import component_means, with_intervals
from spanloop.evaluation.results import load_evaluations
from spanloop.store import Store
from spanloop.training.jobs.training_ids import job_of
from spanloop.training.run.job_api import Job

_MAX_VERSIONS = 12
_MAX_COMPONENTS = 12
_CHARTS_IN_A_ROW = 3


def show_versions(store: Store) -> None:
    """Draw rewards and their components for each policy version."""
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
    success = _value(versions, "success", "rated")
    charts.draw(charts.value_by_version(success, "success rate", is_share=True, colour=GREEN), left)
    charts.draw(charts.value_by_version(_value(versions, "reward", "rewarded"), "mean reward"), right)
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
            charts.draw(charts.value_by_version(means.filter(pl.col("component") == name), "mean", height=170), column)
    if len(names) > _MAX_COMPONENTS:
        st.caption(f"{len(names) - _MAX_COMPONENTS} more components are not drawn.")


def show_training(store: Store) -> None:
    """Draw what jobs did: held-out success before and after, then the curves of KL, entropy and loss."""
    jobs = training_jobs.fetch_metric_jobs(store)
    if jobs.is_empty():
        empty_state("No training metric yet.", "A job writes them at every step:", resources.cli_command("train NAME"))
        return
    ids: list[str] = jobs["job_id"].to_list()
    labels = _job_labels(ids)
    linked_job = st.query_params.get("job", "")
    if linked_job and linked_job not in labels and linked_job != "newest":
        st.warning(f"The job {escape_md(linked_job)} recorded no metric.", icon=":material/link_off:")
    linked = [job for job in st.query_params.get_all("job") if job in labels]
    selected_jobs: list[str] = st.multiselect(
        "Jobs", ids, default=linked or ids[:1], format_func=lambda job_id: labels[job_id], key="curve_jobs"
    )
    if not selected_jobs:
        st.caption("Choose a job.")
        return
    _keep_in_address("job", selected_jobs, ids[:1])
    for training in selected_jobs:
        _before_and_after(store, training, labels[training])
    names = training_jobs.fetch_metric_names(store, selected_jobs)
    named = [name for name in st.query_params.get_all("curve") if name in names]
    default = choose_metrics(names)
    chosen: list[str] = st.multiselect("Curves", names, default=named or default, key=f"curves {selected_jobs}")
    _keep_in_address("curve", chosen, default)
    metrics = training_jobs.fetch_metrics(store, selected_jobs, chosen)
    finite = metrics.filter(pl.col("value").is_finite()).with_columns(pl.col("job_id").replace(labels).alias("job"))
    smoothing, steps = _curve_controls(finite)
    columns = st.columns(2)
    for index, name in enumerate(chosen):
        with columns[index % 2]:
            st.markdown(f"**{metric_title(name)}** :gray[{escape_md(name)}]", help=metric_help(name))
            points = finite.filter(pl.col("name") == name)
            if points.is_empty():
                st.caption(f"{escape_md(name)}: no finite value.")
            else:
                charts.draw(charts.metric_by_step(points, smoothing=smoothing, steps=steps))


def _keep_in_address(name: str, values: list[str], default: list[str]) -> None:
    if values != default:
        st.query_params[name] = values
    elif name in st.query_params:
        del st.query_params[name]


def _curve_controls(metrics: pl.DataFrame) -> tuple[float, tuple[int, int]]:
    """Draw the controls of smoothing and of the range of steps; return what they say."""
    if metrics.is_empty():
        return 0.0, (0, 0)
    first, last = (
        int(each) for each in metrics.select(pl.col("step").min(), pl.col("step").max().alias("last")).row(0)
    )
    left, right = st.columns(2)
    smoothing: float = left.slider(
        "Smoothing",
        0.0,
        0.95,
        0.0,
        0.05,
        key="smooth",
        bind="query-params",
        help="Weight of the past in an exponential moving average; the values themselves stay faint behind it.",
    )
    steps = (first, last)
    if last > first:
        steps = right.slider(
            "Steps",
            first,
            last,
            (first, last),
            key="steps",
            bind="query-params",
            help="Zoom to a range of steps. In a curve a drag moves, Shift and the wheel zoom, a double click resets.",
        )
    return smoothing, (int(steps[0]), int(steps[1]))


def _before_and_after(store: Store, training: str, label: str) -> None:
    """Draw the success of a job's base and result on the same held-out tasks."""
    job = training_jobs.find_source_job(job_of(training))
    if job is None or not job.model_version:
        return
    model = resources.registry().get(job.model_version)
    results = {
        reference: {each.name: each for each in load_evaluations(store, model=reference)}
        for reference in (model.parent or "", model.reference)
        if reference
    }
    shared = [name for name in results.get(model.reference, {}) if name in results.get(model.parent or "", {})]
    if not shared:
        st.caption(
            f"{escape_md(label)}: no evaluation has both the version before and the one after. "
            f"`{resources.cli_command(f'evaluate {model.reference} --run RUN')}` measures one."
        )
        return
    for name in shared:
        before, after = (results[each][name] for each in (model.parent or "", model.reference))
        columns = st.columns([2, 1, 1, 1])
        columns[0].markdown(f"**{escape_md(name)}**  \n{escape_md(label)}")
        columns[1].metric("Success before", share(before.success.value), help=f"{before.tasks:,} tasks")
        gain = 100 * (after.success.value - before.success.value)
        columns[2].metric("Success after", share(after.success.value), f"{gain:+.1f} points")
        columns[3].metric("Reward before → after", f"{before.reward.value:+.2f} → {after.reward.value:+.2f}")


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
