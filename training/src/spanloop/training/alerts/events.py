"""Find events that a rule is about and that have no alert yet: ends of jobs, and decisions about versions.

Invariant: an event counts from the rule's creation on, however long no scheduler ran. A job that is retried and ends
again is another event.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlencode

from sqlalchemy import ColumnElement, String, cast, exists, literal, select
from sqlalchemy.orm import Session

from spanloop.training.jobs.database.tables import AlertRow, DecisionRow, JobRow

from .conditions import JobEnd, PromotionDecision
from .entities import Rule

_MOST_ERROR: Final = 300
"""Characters of a job's error in a message."""


class Event(NamedTuple):
    """One event."""

    cause: str
    detail: str
    link: str


def new_events(session: Session, rule: Rule) -> tuple[Event, ...]:
    """Return the events of a rule that it has no alert for, oldest first; none for a threshold."""
    if isinstance(rule.condition, JobEnd):
        return tuple(_job_ends(session, rule, rule.condition))
    if isinstance(rule.condition, PromotionDecision):
        return tuple(_decisions(session, rule, rule.condition))
    return ()


def _job_ends(session: Session, rule: Rule, condition: JobEnd) -> Iterator[Event]:
    cause = literal("job:") + JobRow.job_id + literal("/") + cast(JobRow.attempt, String)
    ended = select(JobRow, cause).where(
        JobRow.state.in_([str(state) for state in condition.states]),
        JobRow.finished_at >= rule.created_at,
        ~_is_alerted(rule, cause),
    )
    for row, text in session.execute(ended.order_by(JobRow.finished_at, JobRow.job_id)):
        error = " ".join(row.error.split())[:_MOST_ERROR] if row.state == "failed" else ""
        made = f", {row.model_version}" if row.model_version else ""
        detail = f"job {row.job_id} {row.state}{made}{f': {error}' if error else ''}"
        yield Event(text, detail, f"jobs?{urlencode({'job': row.job_id})}")


def _decisions(session: Session, rule: Rule, condition: PromotionDecision) -> Iterator[Event]:
    cause = literal("decision:") + cast(DecisionRow.decision_id, String)
    decided = select(DecisionRow, cause).where(
        DecisionRow.verdict.in_([outcome.value for outcome in condition.outcomes]),
        DecisionRow.decided_at >= rule.created_at,
        ~_is_alerted(rule, cause),
    )
    for row, text in session.execute(decided.order_by(DecisionRow.decision_id)):
        champion = f", compared with {row.champion}" if row.champion else ""
        outcome = row.verdict.replace("_", " ")
        yield Event(text, f"{row.candidate}: {outcome}{champion}", f"models?{urlencode({'model': row.candidate})}")


def _is_alerted(rule: Rule, cause: ColumnElement[str]) -> ColumnElement[bool]:
    return exists().where(AlertRow.rule == rule.name, AlertRow.cause == cause)
