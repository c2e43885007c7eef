"""The one state machine of a job, and the one function that moves a job along it.

::

    queued ──▶ running ──▶ succeeded
      │  ▲        │ ├────▶ failed ───┐
      │  ├────────┘ └────▶ cancelling ──▶ cancelled
      │  └── (retry) ◀───────────────┴──────┘  ▲
      └────────────────────────────────────────┘

The invariant: no state is written anywhere else, and each move is one conditional UPDATE. A move whose condition does
not hold any more changes nothing and says so.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from spanloop.semconv.enums import JobState
from spanloop.training.control.tables import JobRow

LEGAL_MOVES: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
        JobState.RUNNING: frozenset({JobState.QUEUED, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED}),
        JobState.CANCELLING: frozenset({JobState.CANCELLED}),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset({JobState.QUEUED}),
        JobState.CANCELLED: frozenset({JobState.QUEUED}),
    }
)

LEASED_STATES: Final = frozenset({JobState.RUNNING, JobState.CANCELLING})
"""States in which some scheduler holds, or held, the lease."""

FINAL_STATES: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


def move(
    session: Session,
    job_id: str,
    origins: Collection[JobState],
    target: JobState,
    *,
    token: int | None = None,
    values: Mapping[str, object] = MappingProxyType({}),
) -> bool:
    """Move the job from any of ``origins`` to ``target``; False when it is in none of them, or the lease is lost.

    Args:
        session: A writing session.
        job_id: The job.
        origins: States that the job may be in.
        target: The state that it gets.
        token: The fencing token that must still be the job's; None for moves that need no lease.
        values: Further columns of the job to set in the same statement.

    Raises:
        ValueError: The state machine has no such move: a mistake in the calling code.
    """
    for origin in origins:
        if target not in LEGAL_MOVES[origin]:
            raise ValueError(f"illegal move of job {job_id}: {origin} → {target}")
    statement = update(JobRow).where(JobRow.job_id == job_id, JobRow.state.in_([str(origin) for origin in origins]))
    if token is not None:
        statement = statement.where(JobRow.lease_token == token)
    result = cast("CursorResult[Any]", session.execute(statement.values(state=str(target), **values)))
    return result.rowcount == 1
