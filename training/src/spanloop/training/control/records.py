"""Jobs and schedules as values, and how they are read from their rows."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TypeVar

from pydantic import ValidationError

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import DataDirectoryError
from spanloop.training.control.states import FINAL_STATES
from spanloop.training.control.tables import JobRow, ScheduleRow
from spanloop.training.job_spec import JobSpec

log = logging.getLogger(__name__)
Row = TypeVar("Row", JobRow, ScheduleRow)
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Job:
    """One job as it was when it was read."""

    id: str
    spec: JobSpec
    state: JobState
    attempt: int
    """How often it was started; 0 before the first start."""
    created_at: datetime
    started_at: datetime | None
    """Start of the last attempt; None while the job waits for one."""
    finished_at: datetime | None
    step: int
    """Steps that the runner reported as done; a resumed attempt goes on from its checkpoint."""
    steps_total: int
    """Steps that the runner will do; before it said so, the spec's."""
    error: str
    """Why it failed, or why the last attempt ended; empty without a reason."""
    model_version: str
    """``name@version`` that it registered; empty before that."""
    schedule_id: str | None
    """The schedule that submitted it; None when a person did."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen to it without a retry."""
        return self.state in FINAL_STATES


@dataclass(frozen=True, slots=True)
class Schedule:
    """One schedule as it was when it was read."""

    id: str
    spec: JobSpec
    cron: str | None
    """Five cron fields, in UTC; None for a schedule that fires once."""
    next_at: datetime | None
    """The firing that is due next; None when there is none left."""
    last_at: datetime | None
    """When it last submitted a job."""
    last_job_id: str | None
    """The job that it last submitted."""
    created_at: datetime


def spec_of(row: JobRow | ScheduleRow) -> JobSpec:
    """The spec in ``row``.

    Raises:
        DataDirectoryError: Another version of spanloop wrote it, with settings that this one does not know.
    """
    try:
        return JobSpec.model_validate_json(row.spec)
    except ValidationError as error:
        owner = row.job_id if isinstance(row, JobRow) else row.schedule_id
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise DataDirectoryError(
            f"The stored spec of {owner} is not one that this spanloop understands: {wrong}.",
            next_step="Use the version of spanloop that wrote it, or another data directory (--data-dir).",
        ) from error


def readable(rows: Iterable[Row], value_of: Callable[[Row], Value]) -> list[Value]:
    """What ``value_of`` makes of the rows; those that another version of spanloop wrote are logged and left out."""
    found: list[Value] = []
    for row in rows:
        try:
            found.append(value_of(row))
        except DataDirectoryError as error:
            _warn_once(str(error))
    return found


@cache
def _warn_once(text: str) -> None:
    log.warning("left out: %s", text)


def job_of(row: JobRow) -> Job:
    """The job in ``row``."""
    spec = spec_of(row)
    return Job(
        id=row.job_id,
        spec=spec,
        state=JobState(row.state),
        attempt=row.attempt,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        step=row.step,
        steps_total=row.steps_total or spec.steps,
        error=row.error,
        model_version=row.model_version,
        schedule_id=row.schedule_id,
    )


def schedule_of(row: ScheduleRow) -> Schedule:
    """The schedule in ``row``."""
    return Schedule(
        id=row.schedule_id,
        spec=spec_of(row),
        cron=row.cron or None,
        next_at=row.next_at,
        last_at=row.last_at,
        last_job_id=row.last_job_id or None,
        created_at=row.created_at,
    )
