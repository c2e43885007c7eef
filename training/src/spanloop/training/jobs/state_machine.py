"""The state machine of a job, and the only function that writes a job's state.

::

    queued ──▶ running ──▶ succeeded
      │  ▲        │ ├────▶ failed ───┐
      │  ├────────┘ └────▶ cancelling ──▶ cancelled
      │  └── (retry) ◀───────────────┴──────┘  ▲
      └────────────────────────────────────────┘

    running ──▶ evaluating, which goes on as running does

Invariant: each transition is one conditional UPDATE. A transition whose condition no longer holds changes nothing and
returns False.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

from sqlalchemy import CursorResult, update
from sqlalchemy.orm import Session

from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.states import JobState

_ENDS_OF_A_RUN: Final = frozenset({JobState.QUEUED, JobState.CANCELLING, JobState.SUCCEEDED, JobState.FAILED})

LEGAL_TRANSITIONS: Final[Mapping[JobState, frozenset[JobState]]] = MappingProxyType(
    {
        JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
        JobState.RUNNING: frozenset({JobState.EVALUATING}) | _ENDS_OF_A_RUN,
        JobState.EVALUATING: _ENDS_OF_A_RUN,
        JobState.CANCELLING: frozenset({JobState.CANCELLED}),
        JobState.SUCCEEDED: frozenset(),
        JobState.FAILED: frozenset({JobState.QUEUED}),
        JobState.CANCELLED: frozenset({JobState.QUEUED}),
    }
)

ACTIVE_STATES: Final = frozenset({JobState.RUNNING, JobState.EVALUATING})
"""States in which the job's process works."""

LEASED_STATES: Final = ACTIVE_STATES | {JobState.CANCELLING}
"""States in which a scheduler holds, or held, the lease."""

FINAL_STATES: Final = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED})


def transition(
    session: Session,
    job_id: str,
    origins: Collection[JobState],
    target: JobState,
    *,
    token: int | None = None,
    values: Mapping[str, object] = MappingProxyType({}),
) -> bool:
    """Change the state from one of ``origins`` to ``target``; return False if it is another one or the lease is lost.

    Args:
        session: A write session.
        job_id: The job.
        origins: Allowed current states.
        target: The new state.
        token: The fencing token that the job must still have; None for transitions without a lease.
        values: Other columns to set in the same statement.

    Raises:
        ValueError: The state machine has no such transition: a bug in the calling code.
    """
    for origin in origins:
        if target not in LEGAL_TRANSITIONS[origin]:
            raise ValueError(f"illegal transition of job {job_id}: {origin} → {target}")
    statement = update(JobRow).where(JobRow.job_id == job_id, JobRow.state.in_([str(origin) for origin in origins]))
    if token is not None:
        statement = statement.where(JobRow.lease_token == token)
    result = cast("CursorResult[Any]", session.execute(statement.values(state=str(target), **values)))
    return result.rowcount == 1
