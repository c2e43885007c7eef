"""Draw one job, a training or an evaluation: progress, log, results, and buttons to cancel it or run it again."""
# pyright: reportUnknownMemberType=false

from typing import Final

import polars as pl
import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, charts, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.markup import escape_md
from spanloop.dashboard.components.page_frame import draw_again, link_back, linked_page
from spanloop.dashboard.queries import training_jobs
from spanloop.dashboard.view_models.formatting import ago
from spanloop.dashboard.view_models.jobs import (
    STATE_COLOURS,
    STATE_MARKS,
    dataset_facts,
    log_tail,
    progress,
    progress_text,
    recipe,
    run_duration,
    stage_rows,
)
from spanloop.dashboard.view_models.series import JOB_CURVES
from spanloop.foundation.errors import SpanloopError
from spanloop.training.jobs.states import JobState
from spanloop.training.run.job_api import Job
from spanloop.training.spec.stored_spec import AnyJob, EvaluationSpec

_LOG_LINES: Final = 400
_REFRESH_S: Final = 2
_CURVES_REFRESH_S: Final = 10
_CURVES_IN_A_ROW: Final = 3


def show(job_id: str) -> None:
    """Draw the job; raise JobError when no job has the id."""
    link_back("jobs", "All jobs")
    job = resources.queue_api().get(job_id)
    _progress(job_id)
    spec = job.spec
    if isinstance(spec, EvaluationSpec):
        _evaluated(spec)
        _log(job.id, is_finished=job.is_finished)
    else:
        _trained(resources.job_api().get(job_id))
    with st.expander("Job settings"):
        settings = spec.model_dump(mode="json")
        tables.show_facts({name: str(value) for name, value in settings.items()}, heading="setting")


def _evaluated(spec: EvaluationSpec) -> None:
    """Draw where the results of an evaluation stand."""
    with st.container(horizontal=True):
        st.page_link(linked_page("evaluations"), label="Evaluations", icon=":material/fact_check:")
        for reference in spec.versions:
            st.page_link(
                linked_page("models"),
                label=escape_md(reference),
                icon=":material/deployed_code:",
                query_params={"model": reference},
            )


def _trained(job: Job) -> None:
    """Draw links to what a training made, its curves, its log, and what it learned from."""
    _links(job)
    stages = training_jobs.find_stages(job)
    if len(stages) > 1:
        st.markdown("**Stages**")
        tables.show_facts(stage_rows(stages), heading="stage")
    for each in stages:
        _curves(each.training_id, heading=f"Curves of {each.stage.title}" if len(stages) > 1 else "Curves")
    _log(job.id, is_finished=job.is_finished)
    for each in stages:
        of_stage = f" in {each.stage.title}" if len(stages) > 1 else ""
        manifest = training_jobs.find_manifest(each.training_id)
        if manifest is not None:
            st.markdown(f"**What it learned from{of_stage}**")
            tables.show_facts(dataset_facts(manifest))


@st.fragment(run_every=_CURVES_REFRESH_S)
def _curves(job_id: str, *, heading: str) -> None:
    """Draw the recorded metrics of the job by step; the rest of the page needs no store."""
    try:
        metrics = training_jobs.fetch_metrics(resources.store(), [job_id], [curve.metric for curve in JOB_CURVES])
    except SpanloopError as error:
        st.caption(f"No curves: {escape_md(error.what)}")
        return
    finite = metrics.filter(pl.col("value").is_finite()).rename({"job_id": "job"})
    drawn = [(curve, finite.filter(pl.col("name") == curve.metric)) for curve in JOB_CURVES]
    drawn = [(curve, points) for curve, points in drawn if not points.is_empty()]
    if drawn:
        st.markdown(f"**{heading}**")
    for first in range(0, len(drawn), _CURVES_IN_A_ROW):
        row = drawn[first : first + _CURVES_IN_A_ROW]
        for column, (curve, points) in zip(st.columns(_CURVES_IN_A_ROW), row, strict=False):
            column.markdown(f"**{curve.title}**", help=curve.help)
            charts.draw(charts.metric_by_step(points), column)


@st.fragment(run_every=_REFRESH_S)
def _progress(job_id: str) -> None:
    """Draw state, progress and what stopped it; redrawn periodically."""
    api = resources.queue_api()
    job = api.get(job_id)
    if st.session_state.get("job_was_finished", {}).get(job_id, job.is_finished) != job.is_finished:
        # Links to the results are outside this fragment, so the whole page is drawn once.
        st.session_state["job_was_finished"] = {job_id: job.is_finished}
        draw_again()
    st.session_state["job_was_finished"] = {job_id: job.is_finished}
    _state(job)
    _buttons(job)
    if job.error:
        st.markdown(":red[**Why it stopped**]")
        st.code(job.error, language=None, wrap_lines=True)


def _log(job_id: str, *, is_finished: bool) -> None:
    """Draw the log, periodically while the job runs."""
    st.fragment(_show_log, run_every=None if is_finished else _REFRESH_S)(job_id)


def _show_log(job_id: str) -> None:
    log = log_tail(resources.queue_api().log(job_id), _LOG_LINES)
    st.markdown("**Log**")
    if log:
        with st.container(height=380, autoscroll=True, border=True):
            st.code(log, language=None, wrap_lines=True)
    else:
        st.caption("The job has not printed anything yet.")


def _state(job: AnyJob) -> None:
    now = resources.now()
    facts = [
        f":{STATE_COLOURS[job.state]}[**{STATE_MARKS[job.state]}**]",
        f"{recipe(job.spec)} {_versions(job)}",
        f"created {ago(job.created_at, now)}",
        f"ran {run_duration(job, now)}" if job.started_at else "not started yet",
        f"attempt {job.attempt} of {job.spec.max_attempts}" if job.attempt > 1 else "",
    ]
    st.markdown(" · ".join(fact for fact in facts if fact))
    st.progress(progress(job), text=progress_text(job))


def _versions(job: AnyJob) -> str:
    if isinstance(job.spec, EvaluationSpec):
        return f"of {' and '.join(f'**{escape_md(each)}**' for each in job.spec.versions)}"
    return f"from **{escape_md(job.spec.base)}**"


def _buttons(job: AnyJob) -> None:
    api = resources.queue_api()
    if job.state in {JobState.QUEUED, JobState.RUNNING, JobState.EVALUATING}:
        if actions.button("Cancel this job", icon=":material/stop_circle:", key="cancel"):
            actions.act(Action.CANCEL_JOB, job.id, lambda: api.cancel(job.id))
            draw_again()
    elif job.state in {JobState.FAILED, JobState.CANCELLED} and actions.button(
        "Run it again", icon=":material/replay:", key="retry", hint="Goes on where it ended"
    ):
        actions.act(Action.RETRY_JOB, job.id, lambda: api.retry(job.id))
        draw_again()


def _links(job: Job) -> None:
    ended_early = resources.registry().get(job.model_version).metadata.get("ended_early") if job.model_version else ""
    if ended_early:
        st.info(f"Ended early: {escape_md(str(ended_early))}", icon=":material/flag:")
    with st.container(horizontal=True):
        if job.step:
            st.page_link(
                linked_page("evaluations"),
                label="Its curves",
                icon=":material/trending_up:",
                query_params={"view": "Training", "job": job.id},
            )
        if job.model_version:
            st.page_link(
                linked_page("models"),
                label=f"What it made: {escape_md(job.model_version)}",
                icon=":material/deployed_code:",
                query_params={"model": job.model_version},
            )
            parent = resources.registry().get(job.model_version).parent
            if parent:
                st.page_link(
                    linked_page("evaluations"),
                    label="Before and after",
                    icon=":material/compare_arrows:",
                    query_params={"view": "Task by task", "before": parent, "after": job.model_version},
                )
