"""Jobs and schedules as immutable values, and their conversion from database rows.

Both are generic over the specification, which the caller's `ParseSpec` reads.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Generic, TypeVar

from pydantic import ValidationError

from spanloop.foundation.errors import DataDirectoryError
from spanloop.training.jobs.database.tables import JobRow, ScheduleRow, TickRow
from spanloop.training.jobs.queued_spec import ParseSpec, QueuedSpec, SpecT, SpecT_co
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_settings import ScheduleSettings
from spanloop.training.jobs.state_machine import FINAL_STATES
from spanloop.training.jobs.states import JobState

log = logging.getLogger(__name__)
Row = TypeVar("Row", JobRow, ScheduleRow)
Value = TypeVar("Value")


@dataclass(frozen=True)  # slots break calls of an alias such as StoredJob[JobSpec] (CPython 3.11)
class StoredJob(Generic[SpecT_co]):
    """Snapshot of one job."""

    id: str
    spec: SpecT_co
    state: JobState
    attempt: int
    """Number of starts; 0 before the first start."""
    created_at: datetime
    started_at: datetime | None
    """Start of the last attempt; None while the job is queued."""
    finished_at: datetime | None
    step: int
    """Steps that the runner reported as completed; a resumed attempt continues from its checkpoint."""
    steps_total: int
    """Steps in total: the runner's figure, or the spec's before the runner has reported one."""
    error: str
    """Why the job failed or its last attempt ended; empty if there is no reason."""
    model_version: str
    """The ``name@version`` that it registered; empty before that."""
    schedule_id: str | None
    """The schedule that submitted it; None if the user did."""
    retry_at: datetime | None = None
    """A queued job does not start before; None is at once."""
    ran_s: int = 0
    """Run time of the attempts that have ended."""

    @property
    def is_finished(self) -> bool:
        """Whether it is in a final state, which only a retry changes."""
        return self.state in FINAL_STATES

    @property
    def steps_limit(self) -> str:
        """Text of the steps in total; before the runner's first figure the spec's, which the data may not reach."""
        return str(self.steps_total) if self.step or self.is_finished else f"at most {self.steps_total}"


@dataclass(frozen=True)
class StoredSchedule(Generic[SpecT_co]):
    """Snapshot of one schedule."""

    id: str
    spec: SpecT_co
    cron: str | None
    """Five cron fields, in UTC; None for another trigger and for a schedule that submits once."""
    next_at: datetime | None
    """The next tick; None if there is none left."""
    last_at: datetime | None
    """Time of the last submitted job."""
    last_job_id: str | None
    """The last submitted job."""
    created_at: datetime
    settings: ScheduleSettings
    paused_at: datetime | None
    """Since when it does not tick; None if it does."""

    @property
    def is_recurring(self) -> bool:
        """Whether it can submit more than one job."""
        return self.cron is not None or self.settings.interval is not None

    @property
    def starts_text(self) -> str:
        """The kind of the job that a tick starts, or the file whose round it begins."""
        return self.spec.kind if self.settings.loop is None else f"a round of {self.settings.loop.path}"

    @property
    def trigger_text(self) -> str:
        """What submits its job: ``cron 0 3 * * *``, ``every 6h``, ``after 500 new transitions``, ``once``, …."""
        return f"cron {self.cron}" if self.cron is not None else self.settings.trigger_text or "once"


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a schedule, or several in a row with the same result."""

    at: datetime
    """Of the last one."""
    times: int
    outcome: TickOutcome
    reason: str
    job_id: str | None
    """The job that it submitted; of a loop the round, as ``round-3``."""

    def __str__(self) -> str:
        times = f" ({self.times} times)" if self.times > 1 else ""
        return f"{self.outcome}{times}: {self.reason}"


def read_spec(row: JobRow | ScheduleRow, parse_spec: ParseSpec[SpecT]) -> SpecT:
    """Return the spec in ``row``.

    Raises:
        DataDirectoryError: Another version of spanloop wrote it, with settings that this version does not know.
    """
    try:
        return parse_spec(row.spec)
    except ValueError as error:
        owner = row.job_id if isinstance(row, JobRow) else row.schedule_id
        raise DataDirectoryError(
            f"The stored spec of {owner} cannot be read by this version of spanloop: {error}.",
            next_step="Use the version of spanloop that wrote it, or another data directory (--data-dir).",
        ) from error


def parse_settings(row: ScheduleRow) -> ScheduleSettings:
    """Return the settings in ``row``.

    Raises:
        DataDirectoryError: Another version of spanloop wrote them, with settings that this version does not know.
    """
    try:
        return ScheduleSettings.model_validate_json(row.settings)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise DataDirectoryError(
            f"The stored settings of {row.schedule_id} cannot be read by this version of spanloop: "
            f"{'; '.join(problems)}.",
            next_step="Use the version of spanloop that wrote it, or another data directory (--data-dir).",
        ) from error


def uses_gpu(row: JobRow, parse_spec: ParseSpec[QueuedSpec]) -> bool:
    """Whether the job may compute on a GPU; a job of another version of spanloop, which cannot run, does not."""
    try:
        return read_spec(row, parse_spec).uses_gpu
    except DataDirectoryError:
        return False


def skip_unreadable(rows: Iterable[Row], value_of: Callable[[Row], Value]) -> list[Value]:
    """Return ``value_of(row)`` for all rows; log and skip rows that another version of spanloop wrote."""
    values: list[Value] = []
    for row in rows:
        try:
            values.append(value_of(row))
        except DataDirectoryError as error:
            _warn_once(str(error))
    return values


@cache
def _warn_once(text: str) -> None:
    log.warning("skipped: %s", text)


def job_from_row(row: JobRow, parse_spec: ParseSpec[SpecT]) -> StoredJob[SpecT]:
    """Return the job in ``row``.

    Raises:
        DataDirectoryError: Another version of spanloop wrote it.
    """
    spec = read_spec(row, parse_spec)
    return StoredJob(
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
        retry_at=row.retry_at,
        ran_s=row.ran_s,
    )


def schedule_from_row(row: ScheduleRow, parse_spec: ParseSpec[SpecT]) -> StoredSchedule[SpecT]:
    """Return the schedule in ``row``.

    Raises:
        DataDirectoryError: Another version of spanloop wrote it.
    """
    return StoredSchedule(
        id=row.schedule_id,
        spec=read_spec(row, parse_spec),
        cron=row.cron or None,
        next_at=row.next_at,
        last_at=row.last_at,
        last_job_id=row.last_job_id or None,
        created_at=row.created_at,
        settings=parse_settings(row),
        paused_at=row.paused_at,
    )


def tick_from_row(row: TickRow) -> Tick:
    """Return the tick in ``row``."""
    return Tick(row.ticked_at, row.times, TickOutcome(row.verdict), row.reason, row.job_id or None)
