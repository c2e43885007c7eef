"""Run the rounds of a loop: measure, collect, train, test, decide, until its end.

Invariant: one process at a time runs a loop on a data directory. A round is continued after its last finished step,
whatever ended the process before; it has one recorded end.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final, NamedTuple

from spanloop.evaluation.results import load_evaluations, load_figures
from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, DataDirectoryError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.version_names import CHAMPION
from spanloop.store import Store
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import LEADERSHIP_S, Leadership
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.fetching import fetch_model
from spanloop.training.models.files.check import require_model
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.evaluation_run import EvaluationRun

from . import steps
from .budget import Spent
from .checks import CheckedApp
from .estimates import Estimates
from .gated_agent import AttemptGate
from .goal import Goal
from .progress import LoopProgress, RunningStep
from .rounds import STEPS, LoopRound, LoopRounds, RoundOutcome, StepName, StepRecord
from .steps import Result, StepContext
from .timetable import Timetable

LOOP: Final = "loop"
"""Name of the leadership of the process that runs a loop."""
_WAIT_S: Final = 1.0
NO_SECONDS: Final[Mapping[StepName, float]] = MappingProxyType({})


class LoopEnd(NamedTuple):
    """Why a loop ended."""

    reason: str
    rounds: tuple[LoopRound, ...]
    """All rounds of the model's loop, oldest first."""


class LoopOrder(NamedTuple):
    """How long a loop runs."""

    rounds: int | None = None
    """Until the loop has so many decided rounds in all; None finishes the open round, or runs one more."""
    until: Goal | None = None
    """Until the champion's evaluation is so; without ``rounds`` that alone ends the loop."""
    timetable: Timetable = Timetable()
    """When rounds begin; with times and without ``rounds`` and ``until`` the loop goes on for ever."""
    restart_round: bool = False
    """End the open round as abandoned first."""
    assumed_s: Mapping[StepName, float] = NO_SECONDS
    """Durations of steps that were never measured in this loop."""


class Loop:
    """A loop on running services.

    Args:
        data_dir: The data directory.
        store: Its store.
        checked: The file.
        progress: Gets what happens.
    """

    def __init__(self, data_dir: DataDir, store: Store, checked: CheckedApp, progress: LoopProgress) -> None:
        self._data_dir = data_dir
        self._app = app = checked.app
        self._progress = progress
        self._leadership = Leadership(
            ControlDatabase(ControlPaths.of(data_dir)), LOOP, owner=str(ProcessIdentity.current())
        )
        self._rounds = LoopRounds(data_dir, check=self._leadership.check_leads)
        self._gate = AttemptGate(app.budget, data_dir, Spent())
        self._context = StepContext(data_dir, store, app, checked.rule, progress, self._gate)
        self._registry = Registry(data_dir)
        collected = len(checked.training_tasks.ids) * app.run.attempts
        self._collect_ratio = collected / (len(checked.evaluation_tasks.ids) * app.evaluation.attempts)

    def run(self, order: LoopOrder) -> LoopEnd:
        """Run rounds until the order is fulfilled.

        Raises:
            AlreadyRunningError: Another process runs a loop on the data directory.
            BudgetSpentError: The next step or attempt would exceed the budget.
            SpanloopError: A step failed; the same call continues.
        """
        if not self._leadership.acquire():
            raise AlreadyRunningError(
                f"Another loop runs on the data directory {self._data_dir.path}.",
                next_step="Wait for it, or stop it; two loops would take the gateway from each other.",
            )
        try:
            with self._leadership.renewing(LEADERSHIP_S / 3, tolerated=DataDirectoryError):
                return self._run(order)
        finally:
            with suppress(SpanloopError):  # it expires by itself
                self._leadership.release()

    def _run(self, order: LoopOrder) -> LoopEnd:
        base = self._add_model()
        opened = self._open_round(order, base)
        before = self._decided()
        one_more = None if order.until or order.timetable.repeats else before + 1
        target = one_more if order.rounds is None else order.rounds
        while True:
            if opened is None:
                if order.until is not None and (reached := self._reached(order.until)):
                    return self._end(reached)
                if target is not None and self._decided() >= target:
                    return self._end(f"{self._decided()} rounds are done")
                self._wait(order.timetable)
                opened = self._rounds.begin(self._app.model.name, self._champion().reference)
            self._run_round(opened, order, before, target)
            opened = None

    def _wait(self, timetable: Timetable) -> None:
        """Wait for the time at which the next round begins."""
        rounds = self._rounds.list(self._app.model.name)
        next_at = timetable.next_at(rounds[-1].started_at if rounds else None, utc_now())
        if next_at > utc_now():
            self._progress.preparing(f"the next round begins at {next_at:%Y-%m-%d %H:%M} UTC")
        while utc_now() < next_at:
            time.sleep(_WAIT_S)

    def _end(self, reason: str) -> LoopEnd:
        return LoopEnd(reason, self._rounds.list(self._app.model.name))

    def _add_model(self) -> ModelVersion:
        """Return the newest version of the model, which is fetched and registered when there is none."""
        name, source = self._app.model.name, self._app.model.source
        if versions := self._registry.list(name):
            return versions[0]
        self._progress.preparing(f"the model {source} is fetched and checked")
        folder = fetch_model(source, self._data_dir.path / "fetched" / name, self._progress.preparing)
        for warning in require_model(source, folder):
            self._progress.note(warning.what)
        return self._registry.add(name, folder, metadata={"source": source})

    def _champion(self) -> ModelVersion:
        """Return the version that collects: the champion, else what is served, else the newest version."""
        name = self._app.model.name
        alias = Aliases(self._data_dir).find(name, CHAMPION)
        if alias is not None:
            return self._registry.get(alias.reference)
        return self._registry.deployed(name) or self._registry.get(name)

    def _open_round(self, order: LoopOrder, base: ModelVersion) -> LoopRound | None:
        """Return the open round that is continued; one of another champion, or that is not wanted, is ended."""
        opened = next((each for each in self._rounds.list(base.name) if each.outcome is None), None)
        if opened is None:
            return None
        reason = "the user began it again (--restart-round)" if order.restart_round else self._superseded(opened)
        if not reason:
            return opened
        self._progress.ended(self._rounds.end(opened, RoundOutcome.ABANDONED, reason))
        return None

    def _superseded(self, opened: LoopRound) -> str:
        """Return why the champion of an open round is another one now; empty when it is not."""
        alias = Aliases(self._data_dir).find(opened.model, CHAMPION)
        if alias is None or alias.reference in {opened.champion, opened.candidate}:
            return ""
        return f"{alias.reference} became the champion meanwhile"

    def _decided(self) -> int:
        rounds = self._rounds.list(self._app.model.name)
        return sum(each.outcome is not None and each.outcome.is_decided for each in rounds)

    def _reached(self, goal: Goal) -> str:
        """Return how the champion's evaluation reaches the goal; empty when it does not, or there is none."""
        champion, store = self._champion(), self._context.store
        name = EvaluationRun.of(champion, self._app.evaluation).evaluation_name
        evaluation = next(iter(load_evaluations(store, name=name, model=champion.reference)), None)
        if evaluation is None:
            return ""
        figures = {each.name: each.interval.value for each in load_figures(store, evaluation)}
        value = figures.get(str(goal.metric))
        if value is None:
            raise ConfigurationError(
                f"The evaluation {evaluation.evaluation_id} has no {goal.metric}; it has {', '.join(figures)}.",
                next_step="Name one of these in --until.",
            )
        return (
            f"{champion.reference} has {goal.metric} {value:.3g}; asked for: {goal}" if goal.is_reached(value) else ""
        )

    def _run_round(self, number: LoopRound, order: LoopOrder, before: int, target: int | None) -> None:
        done = self._decided() - before
        further = 0 if target is None else target - before - done - 1
        total = None if target is None else (target - before) * len(STEPS)
        for index, name in enumerate(STEPS, 1):
            estimates = Estimates(self._rounds.list(number.model), self._collect_ratio, order.assumed_s)
            running = RunningStep(
                round_number=number.number,
                name=name,
                title=self._title(number, name),
                number=done * len(STEPS) + index,
                total=total,
                expected_s=estimates.seconds(name),
                rest_s=estimates.rest_s(name, further),
            )
            record = number.step(name)
            if record.is_finished:
                self._progress.finished(running, record, was_done=True)
                continue
            number = self._run_step(number, running, record, estimates)
            if name is StepName.MEASURE and order.until is not None and (reached := self._reached(order.until)):
                self._progress.ended(self._rounds.end(number, RoundOutcome.REACHED, reached))
                return
        decided = number.step(StepName.DECIDE).result or {}
        ended = self._rounds.end(number, RoundOutcome(str(decided["outcome"])), str(decided["reason"]))
        self._progress.ended(ended)

    def _run_step(self, number: LoopRound, running: RunningStep, record: StepRecord, estimates: Estimates) -> LoopRound:
        """Run a step, and store it with its time and tokens whether it finishes or not."""
        self._progress.started(running)
        self._gate.restart(self._spent())
        self._gate.require(self._expected(record, estimates))
        record = record._replace(began_at=utc_now().isoformat())
        self._rounds.record(number, record)  # shows which step runs
        result: Result | None = None
        try:
            result = self._work(number, running.name)
        except BaseException:
            with suppress(SpanloopError):  # the error matters more than the time
                self._rounds.record(number, self._record(record, None))
            raise
        finished = self._record(record, result)
        number = self._rounds.record(number, finished, candidate=str(result.get("candidate", "")))
        self._progress.finished(running, finished, was_done=False)
        return number

    def _expected(self, record: StepRecord, estimates: Estimates) -> Spent:
        """Return what a step will cost; of an interrupted one the rest is not known."""
        calls_model = record.name not in {StepName.TRAIN, StepName.DECIDE}
        if record.seconds:
            return Spent(int(calls_model), 1.0)
        tokens = max(1, round(estimates.tokens(record.name))) if calls_model else 0
        return Spent(tokens, estimates.seconds(record.name) or 1.0)

    def _record(self, record: StepRecord, result: Result | None) -> StepRecord:
        spent = self._gate.step_spent()
        return record._replace(
            seconds=round(record.seconds + spent.seconds, 1), tokens=record.tokens + spent.tokens, result=result
        )

    def _spent(self) -> Spent:
        rounds = self._rounds.list(self._app.model.name)
        return Spent(sum(each.tokens for each in rounds), sum(each.seconds for each in rounds))

    def _work(self, number: LoopRound, name: StepName) -> Result:
        if name is StepName.MEASURE:
            return steps.measure(self._context, self._registry.get(number.champion))
        if name is StepName.COLLECT:
            return steps.collect(self._context, number)
        if name is StepName.TRAIN:
            return steps.train(self._context, number)
        if name is StepName.TEST:
            return steps.measure(self._context, self._registry.get(number.candidate))
        return steps.decide(self._context, number)

    def _title(self, number: LoopRound, name: StepName) -> str:
        kind = str(self._app.training(number.number).kind)
        return {
            StepName.MEASURE: f"{number.champion} attempts the evaluation's tasks",
            StepName.COLLECT: f"{number.champion} attempts the training tasks",
            StepName.TRAIN: f"{number.champion} is trained ({kind})",
            StepName.TEST: f"{number.candidate or 'the new version'} attempts the evaluation's tasks",
            StepName.DECIDE: f"the rule decides about {number.candidate or 'the new version'}",
        }[name]
