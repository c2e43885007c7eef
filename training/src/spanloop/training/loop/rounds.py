"""Rounds of a loop in the control database.

Invariant: a round has one end. It is begun, its steps are recorded and it is ended in transactions that check the
loop's leadership, so a loop that hung and comes back changes nothing. A round that was killed is open, and the next
loop continues it after its last finished step.
"""

import json
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import JobError
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import LoopRoundRow
from spanloop.training.jobs.leadership import CheckLeader, unfenced
from spanloop.training.jobs.paths import ControlPaths, HasPath


class StepName(StrEnum):
    """The steps of a round, in their order."""

    MEASURE = "measure"
    """The champion attempts the evaluation's tasks; nothing is done when it has."""
    COLLECT = "collect"
    """The champion attempts the training tasks."""
    TRAIN = "train"
    TEST = "test"
    """The new version attempts the evaluation's tasks."""
    DECIDE = "decide"
    """The promotion rule decides, and the champion is served."""


STEPS: Final = tuple(StepName)


class RoundOutcome(StrEnum):
    """How a round ended."""

    PROMOTED = "promoted"
    KEPT = "kept"
    UNDECIDED = "undecided"
    REACHED = "reached"
    """The champion had reached the goal before anything was trained (``--until``)."""
    ABANDONED = "abandoned"
    """The champion changed while it was open, or the user ended it (``--restart-round``)."""

    @property
    def is_decided(self) -> bool:
        """Whether the round made a version and a decision."""
        return self not in {RoundOutcome.REACHED, RoundOutcome.ABANDONED}


class StepRecord(NamedTuple):
    """One step of a round, finished or interrupted."""

    name: StepName
    seconds: float = 0.0
    """Work of all processes that ran it."""
    tokens: int = 0
    """Prompt and completion tokens that the gateway answered meanwhile."""
    began_at: str = ""
    """When it last began, ISO 8601; empty before."""
    result: Mapping[str, Any] | None = None
    """What later steps and reports read; None until it is finished."""

    @property
    def is_finished(self) -> bool:
        """Whether it is not run again."""
        return self.result is not None


class LoopRound(NamedTuple):
    """One round."""

    model: str
    number: int
    champion: str
    candidate: str
    steps: tuple[StepRecord, ...]
    outcome: RoundOutcome | None
    """None while it is open."""
    reason: str
    started_at: datetime
    ended_at: datetime | None

    def step(self, name: StepName) -> StepRecord:
        """Return a step, which may not have begun."""
        return next((step for step in self.steps if step.name is name), StepRecord(name))

    @property
    def seconds(self) -> float:
        """Work of its steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def tokens(self) -> int:
        """Tokens of its steps."""
        return sum(step.tokens for step in self.steps)


class LoopRounds:
    """The stored rounds of all loops of a data directory.

    Args:
        data_dir: The data directory, or its path; it must exist.
        check: Raises in a transaction of a process that does not run the loop any more.
        clock: Returns the current time.
    """

    def __init__(
        self, data_dir: str | os.PathLike[str] | HasPath, *, check: CheckLeader = unfenced, clock: Clock = utc_now
    ) -> None:
        self._database = ControlDatabase(ControlPaths.of(data_dir))
        self._check = check
        self._clock = clock

    def list(self, model: str = "") -> tuple[LoopRound, ...]:
        """Return the rounds of a model's loop, or of all, oldest first."""
        rows = select(LoopRoundRow).order_by(LoopRoundRow.model, LoopRoundRow.number)
        if model:
            rows = rows.where(LoopRoundRow.model == model)
        with self._database.read() as session:
            return tuple(_value(row) for row in session.scalars(rows))

    def begin(self, model: str, champion: str) -> LoopRound:
        """Begin the next round.

        Raises:
            JobError: The round before is open.
            LeadershipLostError: Another process runs the loop.
        """
        with self._database.write() as session:
            self._check(session)
            last = session.scalar(select(func.max(LoopRoundRow.number)).where(LoopRoundRow.model == model)) or 0
            before = session.get(LoopRoundRow, (model, last)) if last else None
            if before is not None and before.ended_at is None:
                raise JobError(f"Round {last} of {model} is open.", next_step="Continue it: spanloop loop FILE")
            row = LoopRoundRow(model=model, number=last + 1, champion=champion, started_at=self._clock())
            session.add(row)
            session.flush()
            return _value(row)

    def record(self, number: LoopRound, step: StepRecord, *, candidate: str = "") -> LoopRound:
        """Store a step of an open round; a finished step never changes."""

        def change(row: LoopRoundRow) -> None:
            steps = {each.name: each for each in _steps(row.steps)}
            if (stored := steps.get(step.name)) is not None and stored.is_finished:
                raise JobError(f"The step {step.name} of round {row.number} of {row.model} is finished already.")
            steps[step.name] = step
            row.steps = json.dumps([each._asdict() for each in steps.values()])
            row.candidate = candidate or row.candidate

        return self._change(number, change)

    def end(self, number: LoopRound, outcome: RoundOutcome, reason: str) -> LoopRound:
        """Record the end of an open round."""

        def change(row: LoopRoundRow) -> None:
            row.outcome, row.reason, row.ended_at = outcome.value, reason, self._clock()

        return self._change(number, change)

    def _change(self, number: LoopRound, change: Callable[[LoopRoundRow], None]) -> LoopRound:
        """Change an open round.

        Raises:
            JobError: It has ended.
            LeadershipLostError: Another process runs the loop.
        """
        with self._database.write() as session:
            self._check(session)
            row = _open_row(session, number)
            change(row)
            session.flush()
            return _value(row)


def _open_row(session: Session, number: LoopRound) -> LoopRoundRow:
    row = session.get(LoopRoundRow, (number.model, number.number))
    if row is None or row.ended_at is not None:
        end = "does not exist" if row is None else f"has ended: {row.outcome}"
        raise JobError(
            f"Round {number.number} of {number.model} {end}.", next_step="Begin the next one: spanloop loop FILE"
        )
    return row


def _steps(text: str) -> tuple[StepRecord, ...]:
    return tuple(StepRecord(**fields | {"name": StepName(fields["name"])}) for fields in json.loads(text))


def _value(row: LoopRoundRow) -> LoopRound:
    return LoopRound(
        model=row.model,
        number=row.number,
        champion=row.champion,
        candidate=row.candidate or "",
        steps=_steps(row.steps or "[]"),
        outcome=RoundOutcome(row.outcome) if row.outcome else None,
        reason=row.reason or "",
        started_at=row.started_at,
        ended_at=row.ended_at,
    )
