"""What ``spanloop status`` knows, as one object: its keys are promised to programs."""

import os
import shutil
from typing import TYPE_CHECKING, Final, TypedDict

from spanloop.semconv.enums import JobState
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import SpanloopError

from . import service_health

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

_OPEN: Final = {JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING}
_STORED: Final = ("spans", "episodes", "transitions", "trainable_transitions")


class ServiceReport(TypedDict):
    """One service; ``pid`` is 0 when none of this machine runs, ``note`` says more of one elsewhere."""

    name: str
    is_running: bool
    url: str
    pid: int
    note: str


class JobReport(TypedDict):
    """One job that has not ended."""

    id: str
    kind: str
    base: str
    state: str
    step: int
    steps_total: int | None


class StatusReport(TypedDict):
    """Everything; parts of services that do not answer are None."""

    data_dir: str
    exists: bool
    services: list[ServiceReport]
    gateway: dict[str, object] | None
    collector: dict[str, object] | None
    stored: dict[str, int] | None
    store_error: str
    jobs: list[JobReport]
    disk_free_bytes: int


def report(directory: "DataDir") -> StatusReport:
    """Ask everybody."""
    engine, collector, held = service_health.engine(directory), service_health.collector(directory), stored(directory)
    return StatusReport(
        data_dir=str(directory.path),
        exists=True,
        services=services(directory),
        gateway=None if engine is None else engine._asdict(),
        collector=None if collector is None else collector._asdict(),
        stored=None if isinstance(held, str) else held,
        store_error=held if isinstance(held, str) else "",
        jobs=open_jobs(directory),
        disk_free_bytes=shutil.disk_usage(directory.path).free,
    )


def services(directory: "DataDir") -> list[ServiceReport]:
    """Which services run."""
    from spanloop.datadir.service_states import service_states

    found: list[ServiceReport] = []
    for each in service_states(directory.path, os.environ.get(CLICKHOUSE_URL_ENV, "")):
        running = directory.running(each.name)
        found.append(
            ServiceReport(
                name=each.name,
                is_running=each.is_running,
                url=each.url,
                pid=running.pid if running else 0,
                note=each.note,
            )
        )
    return found


def stored(directory: "DataDir") -> dict[str, int] | str:
    """How much is stored, or why that cannot be said."""
    from spanloop.store import connect

    try:
        with connect(directory) as store:
            held = store.query("dashboard_totals", since_s=0).row(0, named=True)
    except SpanloopError as error:
        return str(error)
    return {name: int(held[name]) for name in _STORED}


def open_jobs(directory: "DataDir") -> list[JobReport]:
    """Jobs that have not ended, the newest first."""
    from spanloop.training.jobs import JobApi

    return [
        JobReport(
            id=job.id,
            kind=job.spec.kind,
            base=job.spec.base,
            state=job.state,
            step=job.step,
            steps_total=job.steps_total,
        )
        for job in JobApi(directory).list()
        if job.state in _OPEN
    ]
