"""Making, reading and asking about job rows: what the job API does, less the files."""

import secrets
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import JobError
from spanloop.training.control.states import move
from spanloop.training.control.tables import JobRow
from spanloop.training.job_spec import JobSpec


def insert_job(
    session: Session,
    spec: JobSpec,
    *,
    now: datetime,
    schedule_id: str | None = None,
    fired_for: datetime | None = None,
) -> JobRow:
    """A queued job; the database refuses a second one for the same firing of a schedule."""
    row = JobRow(
        job_id=new_id(str(spec.kind), now),
        spec=spec.model_dump_json(),
        state=str(JobState.QUEUED),
        attempt=0,
        interruptions=0,
        created_at=now,
        step=0,
        steps_total=0,
        error="",
        model_version="",
        lease_token=0,
        lease_owner="",
        runner="",
        schedule_id=schedule_id,
        fired_for=fired_for,
    )
    session.add(row)
    session.flush()
    return row


def new_id(prefix: str, now: datetime) -> str:
    """An id that sorts by time and that no other process makes."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def find_job(session: Session, job_id: str) -> JobRow:
    """The row of ``job_id``.

    Raises:
        JobError: There is no such job.
    """
    row = session.get(JobRow, job_id, populate_existing=True)
    if row is None:
        raise JobError(f"There is no job {job_id!r}.", next_step="See them: spanloop jobs list")
    return row


def all_jobs(session: Session, *, limit: int) -> Sequence[JobRow]:
    """The newest jobs first."""
    return session.scalars(select(JobRow).order_by(JobRow.created_at.desc(), JobRow.job_id.desc()).limit(limit)).all()


def ask_cancel(session: Session, job_id: str, *, now: datetime) -> None:
    """Cancel a queued job at once; ask the scheduler to end a running one. A finished job stays as it is."""
    if not move(session, job_id, {JobState.QUEUED}, JobState.CANCELLED, values={"finished_at": now}):
        move(session, job_id, {JobState.RUNNING}, JobState.CANCELLING)


def requeue_finished(session: Session, job_id: str) -> bool:
    """Queue a failed or cancelled job again, with a fresh allowance of attempts; False when it is neither."""
    values = {"started_at": None, "finished_at": None, "interruptions": 0, "error": "", "runner": "", "lease_owner": ""}
    return move(session, job_id, {JobState.FAILED, JobState.CANCELLED}, JobState.QUEUED, values=values)
