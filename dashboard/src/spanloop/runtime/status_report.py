"""The status of a spanloop as one object, as ``spanloop status --json`` prints it: its keys are a stable API."""

import shutil
from typing import TYPE_CHECKING, Final, TypedDict

from spanloop.foundation.errors import SpanloopError
from spanloop.semconv.environment import CONTROL_URL_ENV, read_setting

from . import service_health

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

_STORED: Final = ("spans", "episodes", "transitions", "trainable_transitions")


class ServiceReport(TypedDict):
    """One service; ``pid`` is 0 unless it runs on this machine, ``note`` names the setting of one elsewhere."""

    name: str
    is_running: bool
    url: str
    pid: int
    note: str


class PipelineReport(TypedDict):
    """One pipeline that is registered in the control database, on this or another host."""

    process: str
    """Its pid, and the host where that is another one."""
    activity: str
    spans: int
    """New spans that it has converted since it started."""
    started_at: str


class JobReport(TypedDict):
    """One unfinished job."""

    id: str
    kind: str
    base: str
    state: str
    step: int
    steps_total: int | None


class StatusReport(TypedDict):
    """The whole report; the part of a service that does not respond is None."""

    data_dir: str
    exists: bool
    services: list[ServiceReport]
    gateway: dict[str, object] | None
    collector: dict[str, object] | None
    stored: dict[str, int] | None
    store_error: str
    pipelines: list[PipelineReport] | None
    pipelines_error: str
    jobs: list[JobReport] | None
    jobs_error: str
    disk_free_bytes: int


def report(directory: "DataDir") -> StatusReport:
    """Collect the status of every service, the store, the jobs and the disk."""
    gateway, collector, totals, converting, jobs = (
        service_health.gateway_health(directory),
        service_health.collector_health(directory),
        stored(directory),
        pipelines(directory),
        open_jobs(directory),
    )
    return StatusReport(
        data_dir=str(directory.path),
        exists=True,
        services=services(directory),
        gateway=None if gateway is None else gateway._asdict(),
        collector=None if collector is None else collector._asdict(),
        stored=None if isinstance(totals, str) else totals,
        store_error=totals if isinstance(totals, str) else "",
        pipelines=None if isinstance(converting, str) else converting,
        pipelines_error=converting if isinstance(converting, str) else "",
        jobs=None if isinstance(jobs, str) else jobs,
        jobs_error=jobs if isinstance(jobs, str) else "",
        disk_free_bytes=shutil.disk_usage(directory.path).free,
    )


def services(directory: "DataDir") -> list[ServiceReport]:
    """Report every service, running or not."""
    from spanloop.foundation.paths.service_states import service_states

    reports: list[ServiceReport] = []
    for state in service_states(directory.path):
        running = directory.running(state.name)
        reports.append(
            ServiceReport(
                name=state.name,
                is_running=state.is_running,
                url=state.url,
                pid=running.pid if running else 0,
                note=state.note,
            )
        )
    return reports


def stored(directory: "DataDir") -> dict[str, int] | str:
    """Return row counts by name, or the reason why the store cannot be read."""
    from spanloop.store import connect

    try:
        with connect(directory) as store:
            totals = store.query("dashboard_totals", since_s=0).row(0, named=True)
    except SpanloopError as error:
        return str(error)
    return {name: int(totals[name]) for name in _STORED}


def pipelines(directory: "DataDir") -> list[PipelineReport] | str:
    """Report the pipelines that are registered, the first one first; or the reason why they cannot be read."""
    from spanloop.foundation.control.pipelines import running_pipelines
    from spanloop.foundation.control.sessions import ControlSessions

    try:
        if not (directory.control_db.exists() or read_setting(CONTROL_URL_ENV)):
            return []
        running = running_pipelines(ControlSessions(directory.control_db))
    except SpanloopError as error:
        return str(error)
    return [
        PipelineReport(
            process=process_name(each.owner),
            activity=each.activity,
            spans=each.spans,
            started_at=each.started_at.isoformat(timespec="seconds"),
        )
        for each in running
    ]


def process_name(owner: str) -> str:
    """Return the pid of an owner of a lease, and the host where that is another one."""
    from spanloop.foundation.processes.identity import ProcessIdentity

    identity = ProcessIdentity.parse(owner.partition(" ")[0])
    if identity is None:
        return owner
    host = "" if identity.is_on_this_machine else f" on {identity.machine.split('.', 2)[-1]}"
    return f"{identity.pid}{host}"


def open_jobs(directory: "DataDir") -> list[JobReport] | str:
    """Report unfinished jobs, the newest first; or the reason why they cannot be read."""
    from spanloop.training.jobs.queue_api import QueueApi
    from spanloop.training.spec.stored_spec import parse_any_spec

    try:
        jobs = QueueApi(directory, parse_any_spec).list()
    except SpanloopError as error:
        return str(error)
    return [
        JobReport(
            id=job.id,
            kind=job.spec.kind,
            base=job.spec.base,
            state=job.state,
            step=job.step,
            steps_total=job.steps_total,
        )
        for job in jobs
        if not job.is_finished
    ]
