"""Stored decisions, and the aliases that move with them.

Invariant: a decision and the moves of ``champion`` and ``candidate`` that follow from it are one transaction, on the
condition that the champion is still the one that was compared. So a decision is never applied to another champion.
"""

import os
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import JobError
from spanloop.foundation.settings import Promotion
from spanloop.foundation.version_names import CANDIDATE, CHAMPION, number_of
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import DecisionRow
from spanloop.training.jobs.leases import JobLease, state_of
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.models.aliases import REMOVED, find_alias, list_moves, move_alias
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.outcome import PromotionOutcome

from .evidence import Decision, Evidence, Judgement


class Contest(NamedTuple):
    """Who is compared."""

    candidate: ModelVersion
    champion: ModelVersion | None
    """None when there is none yet."""

    @property
    def champion_reference(self) -> str:
        """``name@version``; empty without a champion."""
        return self.champion.reference if self.champion else ""


class Decisions:
    """The decisions of one data directory.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._database = ControlDatabase(ControlPaths.of(data_dir))
        self._registry = Registry(data_dir)
        self._clock = clock

    def list(self, name: str = "", *, candidate: str = "", limit: int = 1000) -> tuple[Decision, ...]:
        """Return decisions, newest first.

        Args:
            name: Only of this model; empty for all.
            candidate: Only about this ``name@version``; empty for all.
            limit: At most so many.
        """
        rows = select(DecisionRow).order_by(DecisionRow.decision_id.desc()).limit(limit)
        if name:
            rows = rows.where(DecisionRow.name == name)
        if candidate:
            rows = rows.where(DecisionRow.candidate == candidate)
        with self._database.read() as session:
            return tuple(_value(row) for row in session.scalars(rows))

    def of_job(self, job_id: str) -> Decision | None:
        """Return the last decision of a job; None before it."""
        rows = select(DecisionRow).where(DecisionRow.job_id == job_id).order_by(DecisionRow.decision_id.desc())
        with self._database.read() as session:
            row = session.scalars(rows.limit(1)).first()
            return None if row is None else _value(row)

    def contest(self, reference: str) -> Contest:
        """Return the candidate ``reference`` and the champion that it has to beat.

        That is the alias ``champion`` of its model; without it the other version that was deployed last, of its model
        or else of any, else its parent.

        Raises:
            JobError: There is no such version, or it is the champion.
        """
        candidate = self._registry.get(reference)
        with self._database.read() as session:
            alias = find_alias(session, candidate.name, CHAMPION)
        if alias is not None and alias.reference == candidate.reference:
            raise JobError(
                f"{candidate.reference} is the champion; there is nothing to decide.",
                next_step="Name a candidate: spanloop models list",
            )
        deployments = (*self._registry.deployments(name=candidate.name), *self._registry.deployments())
        deployed = (each.reference for each in deployments if each.reference != candidate.reference)
        rival = alias.reference if alias is not None else next(deployed, candidate.parent)
        return Contest(candidate, None if rival is None else self._registry.get(rival))

    def record(
        self, contest: Contest, judgement: Judgement, *, rule: Promotion | None, lease: JobLease | None = None
    ) -> Decision:
        """Store a decision and let ``champion`` and ``candidate`` name what it says; it deploys nothing.

        Raises:
            JobError: The champion has changed since it was compared.
            JobLeaseLostError: The job that decides is run by another process.
        """
        now = self._clock()
        with self._database.write() as session:
            if lease is not None:
                state_of(session, lease)
            row = DecisionRow(
                decided_at=now,
                name=contest.candidate.name,
                candidate=contest.candidate.reference,
                champion=contest.champion_reference,
                rule="" if rule is None else rule.model_dump_json(),
                verdict=judgement.outcome.value,
                evidence=judgement.evidence.model_dump_json(),
                job_id=None if lease is None else lease.job_id,
            )
            session.add(row)
            session.flush()
            _move_aliases(session, contest, judgement.outcome, now)
            return _value(row)

    def rollback_target(self, name: str) -> Contest:
        """Return the champion of a model as the candidate, and the version before it as the champion.

        Raises:
            JobError: There is no champion, or none before it.
        """
        with self._database.read() as session:
            alias = find_alias(session, name, CHAMPION)
        if alias is None or not alias.rolls_back_to:
            now = f"{alias.reference} is its champion, and there was none before" if alias else "it has no champion"
            raise JobError(
                f"Model {name!r} cannot be rolled back: {now}.",
                next_step=f"Serve a version of your choice: spanloop models deploy {name}@v1",
            )
        return Contest(self._registry.get(alias.reference), self._registry.get(alias.rolls_back_to))


def _move_aliases(session: Session, contest: Contest, outcome: PromotionOutcome, now: datetime) -> None:
    """Let ``champion`` and ``candidate`` name what the outcome says.

    Raises:
        JobError: Another version is the champion by now.
    """
    name, candidate, rival = contest.candidate.name, contest.candidate, contest.champion
    champion, marked = find_alias(session, name, CHAMPION), find_alias(session, name, CANDIDATE)
    serves = champion is not None and champion.reference == candidate.reference
    if outcome is PromotionOutcome.ROLLED_BACK and serves and rival is not None:
        number = number_of(rival.version) if rival.name == name else REMOVED
        before = _champion_before(session, rival.reference)
        move_alias(session, name, CHAMPION, number, rolls_back_to=before, now=now)
    elif champion is not None and champion.reference != contest.champion_reference:
        raise JobError(
            f"The champion of {name!r} has changed meanwhile: got {champion.reference}, expected "
            f"{contest.champion_reference or 'none'}.",
            next_step=f"Decide again: spanloop promote {candidate.reference}",
        )
    elif outcome is PromotionOutcome.PROMOTED:
        number = number_of(candidate.version)
        move_alias(session, name, CHAMPION, number, rolls_back_to=contest.champion_reference, now=now)
    elif champion is None and rival is not None and rival.name == name:
        # what was compared as the champion is one from now on
        move_alias(session, name, CHAMPION, number_of(rival.version), rolls_back_to="", now=now)
    is_marked = marked is not None and marked.reference == candidate.reference
    if outcome is PromotionOutcome.UNDECIDED and not is_marked:
        move_alias(session, name, CANDIDATE, number_of(candidate.version), rolls_back_to="", now=now)
    elif outcome is not PromotionOutcome.UNDECIDED and is_marked:
        move_alias(session, name, CANDIDATE, REMOVED, rolls_back_to="", now=now)


def _champion_before(session: Session, reference: str) -> str:
    """Return the champion before ``reference`` first was one; empty when there was none."""
    moves = list_moves(session, reference.partition("@")[0], CHAMPION)
    return next((move.rolls_back_to for move in reversed(moves) if move.reference == reference), "")


def _value(row: DecisionRow) -> Decision:
    return Decision(
        id=row.decision_id,
        decided_at=row.decided_at,
        name=row.name,
        candidate=row.candidate,
        champion=row.champion,
        rule=Promotion.model_validate_json(row.rule) if row.rule else None,
        outcome=PromotionOutcome(row.verdict),
        evidence=Evidence.model_validate_json(row.evidence),
        job_id=row.job_id,
    )
