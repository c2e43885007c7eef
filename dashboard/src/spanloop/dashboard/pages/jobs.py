"""List training jobs and schedules, with a form for new ones; ``?job=…`` shows one job with its log."""
# pyright: reportUnknownMemberType=false

from typing import ClassVar

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.components import actions, job_detail, tables
from spanloop.dashboard.components.actions import Action
from spanloop.dashboard.components.job_form import form
from spanloop.dashboard.components.page_frame import draw_again, empty_state, page, show_not_running
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.page import Page, PageContext
from spanloop.dashboard.view_models.formatting import one_line
from spanloop.dashboard.view_models.jobs import (
    STATE_MARKS,
    error_headline,
    last_tick,
    progress,
    recipe,
    run_duration,
    steps_text,
)
from spanloop.foundation.paths.service_states import may_run_elsewhere
from spanloop.training.run.job_api import Schedule, Tick
from spanloop.training.spec.stored_spec import AnyJob

_NEW_JOB = "New job"
_VIEWS = ("Jobs", _NEW_JOB, "Schedules")


class JobsPage(Page):
    """Training jobs and schedules."""

    title: ClassVar[str] = "Jobs"
    icon: ClassVar[str] = ":material/model_training:"

    def show(self, context: PageContext) -> None:
        """Draw the jobs, or the job that the URL names."""
        del context
        job_id = st.query_params.get("job", "")
        if job_id:
            with page("Job", job_id):
                job_detail.show(job_id)
            return
        with page(
            "Jobs",
            "A job trains a version on episodes into the next one, or evaluates versions. Click a row to open it.",
        ):
            directory = resources.data_dir()
            if directory.running("scheduler") is None and not may_run_elsewhere(directory.path, "scheduler"):
                show_not_running(
                    "No scheduler runs: jobs wait in the queue.",
                    "Start everything with",
                    resources.cli_command("up"),
                    icon=":material/pause_circle:",
                )
            if form.NEXT_VIEW in st.session_state:
                st.session_state["jobs_view"] = st.session_state.pop(form.NEXT_VIEW)
            view = st.segmented_control(
                "View",
                [view for view in _VIEWS if view != _NEW_JOB or actions.may_act()],
                default=_VIEWS[0],
                key="jobs_view",
                bind="query-params",
                label_visibility="collapsed",
                required=True,
            )
            if view == _NEW_JOB:
                form.show()
            elif view == "Schedules":
                _schedules()
            else:
                _jobs()


@st.fragment(run_every=3)
def _jobs() -> None:
    jobs = resources.queue_api().list(limit=200)
    if not jobs:
        empty_state(
            "No job yet.", "Create one under “New job”, or on the command line:", resources.cli_command("train NAME")
        )
        return
    tables.show(
        tables.to_frame([_job_row(job) for job in jobs]),
        _job_columns(),
        [address("jobs", job=job.id) for job in jobs],
        key="jobs",
    )


def _job_row(job: AnyJob) -> dict[str, object]:
    return {
        "state": STATE_MARKS[job.state],
        "progress": progress(job),
        "steps": steps_text(job),
        "kind": recipe(job.spec),
        "base": job.spec.base,
        "result": job.model_version,
        "created_at": job.created_at,
        "took": run_duration(job, resources.now()),
        "error": one_line(error_headline(job.error), 200),
        "job": job.id,
    }


def _job_columns() -> tables.Columns:
    return {
        "state": tables.text_column("state", width=105),
        "progress": Column("progress", "progress", width=120),
        "steps": tables.text_column("steps", width=70),
        "kind": tables.text_column("kind", width=95),
        "base": tables.text_column("from", width=120),
        "result": tables.text_column("made", width=120),
        "created_at": tables.time_column("created"),
        "took": tables.text_column("took", width=85),
        "error": tables.text_column("error", width=180),
        "job": Column("job", "id", width=210),
    }


def _schedules() -> None:
    schedules = resources.job_api().schedules()
    if not schedules:
        st.info("No schedule. Create one under “New job”: at a time, or repeatedly.", icon=":material/event:")
        return
    selected_id = st.query_params.get("schedule", "")
    tables.show(
        tables.to_frame([_schedule_row(schedule) for schedule in schedules]),
        _schedule_columns(),
        [address("jobs", jobs_view="Schedules", schedule=schedule.id) for schedule in schedules],
        key="schedules",
        current=f"schedule={selected_id}" if selected_id else "",
    )
    st.caption("Open a row for what its schedule did and why, to pause or delete it, or to open its last job.")
    selected = next((schedule for schedule in schedules if schedule.id == selected_id), None)
    if selected is not None:
        _schedule_actions(selected)


def _schedule_row(schedule: Schedule) -> dict[str, object]:
    return {
        "trigger": schedule.trigger_text,
        "next_at": None if schedule.paused_at else schedule.next_at,
        "last_tick": last_tick(resources.job_api().ticks(schedule.id, limit=1), is_paused=bool(schedule.paused_at)),
        "last_at": schedule.last_at,
        "kind": recipe(schedule.spec) if schedule.settings.loop is None else schedule.starts_text,
        "base": schedule.spec.base,
        "steps": schedule.spec.optimiser.steps,
        "deploy": "always" if schedule.spec.run.deploy_always else "by rule" if schedule.spec.run.deploy else "no",
        "schedule": schedule.id,
    }


def _schedule_columns() -> tables.Columns:
    return {
        "trigger": tables.text_column("trigger", help="When it submits its job, if there is something new to train on"),
        "next_at": tables.time_column("next", "The next tick; empty when it is paused or does not tick again"),
        "last_tick": tables.text_column("last tick", help="What it did last, and why", width=380),
        "last_at": tables.time_column("last job"),
        "base": tables.text_column("from"),
        "deploy": tables.text_column(
            "deploy", help="Serve the new version afterwards: always, or when the promotion rule says so"
        ),
    }


def _tick_row(tick: Tick) -> dict[str, object]:
    return {"at": tick.at, "times": tick.times, "did": tick.outcome.value, "why": tick.reason, "job": tick.job_id}


def _schedule_actions(schedule: Schedule) -> None:
    ticks = resources.job_api().ticks(schedule.id)
    if ticks:
        tables.show(tables.to_frame([_tick_row(tick) for tick in ticks]), {"at": tables.time_column("tick")})
    with st.container(horizontal=True):
        if schedule.paused_at is None:
            if actions.button("Pause this schedule", icon=":material/pause:", key="pause_schedule"):
                actions.act(Action.PAUSE_SCHEDULE, schedule.id, lambda: resources.job_api().pause(schedule.id))
                draw_again()
        elif actions.button("Resume this schedule", icon=":material/play_arrow:", key="resume_schedule"):
            actions.act(Action.RESUME_SCHEDULE, schedule.id, lambda: resources.job_api().resume(schedule.id))
            draw_again()
        if actions.button("Delete this schedule", icon=":material/delete:", key="delete_schedule"):
            actions.act(Action.DELETE_SCHEDULE, schedule.id, lambda: resources.job_api().unschedule(schedule.id))
            st.toast("The schedule is deleted; its jobs stay.")
            draw_again()
        last_job_id = schedule.last_job_id if schedule.settings.loop is None else None
        if last_job_id and st.button("Open its last job", icon=":material/open_in_new:"):
            st.query_params["job"] = last_job_id
            draw_again()
