"""Run every attempt at every task of a source by runners on any host, and store the results.

Invariant: the run's ledger decides. An attempt is claimed there before it is offered, and its end is recorded there
before its offer is removed; an offer that the ledger does not know as running is removed. So a kill of this process
loses no attempt and counts none twice: the same call continues, also with attempts that runners make meanwhile.
"""

import json
import threading
import time
from pathlib import Path
from typing import Final

from spanloop.evaluation.runner.attempt import EndedAttempt, TaskAttempt
from spanloop.evaluation.runner.ledger import Ledger, Summary
from spanloop.evaluation.runner.making import Progress, grade_waiting
from spanloop.evaluation.runner.planning import RunRequest
from spanloop.evaluation.runner.run import RunPlan, mark_prefix, run_attempts
from spanloop.evaluation.runner.stored_attempts import StoreWriter
from spanloop.foundation.errors import DataDirectoryError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.marked import VariableMark, kill_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from .offers import Offers, OfferState, Refusal

_POLL_S: Final = 0.2
_REFUSED_S: Final = 180.0
"""A run ends that a runner refuses for good, and of which no other runner takes an attempt for so long; a runner that
makes attempts of other runs makes way after a minute."""
_OFFERED_PER_SLOT: Final = 2
"""Offers for each attempt that may be made at the same time: the next one is there when one ends."""


def run_requested(
    data_dir: DataDir, request: RunRequest, plan: RunPlan, store: Store, *, progress: Progress, stop: threading.Event
) -> Summary:
    """Make all attempts that have no end yet, here or in the pool as the request says, and store the results.

    Args:
        data_dir: An opened data directory.
        request: What was planned; without a folder of the agent, the working directory is that.
        plan: The plan of the request.
        store: Where results are stored.
        progress: Is told each result as it comes.
        stop: When it is set, running attempts are interrupted, to be made again by the next call.

    Raises:
        SpanloopError: As `run_in_pool` and `run_attempts`.
    """
    if not request.pool:
        return run_attempts(plan, store, progress, stop)
    folder = (request.cwd or Path.cwd()).absolute()
    of_runners = request.model_copy(update={"model": plan.identity["model"], "cwd": folder})
    offers = Offers(ControlDatabase(ControlPaths.of(data_dir)))
    return run_in_pool(plan, of_runners, offers, store, progress=progress, stop=stop)


def run_in_pool(
    plan: RunPlan, request: RunRequest, offers: Offers, store: Store, *, progress: Progress, stop: threading.Event
) -> Summary:
    """Offer all attempts that have no end yet, collect their ends, and return what became of all of them.

    Args:
        plan: What is run; runners plan the attempts themselves.
        request: What runners make of it: with the model that is served and the folder of the agent.
        offers: Of the control database that the runners share.
        store: Where results are stored.
        progress: Is told each result as it comes.
        stop: When it is set, running attempts are interrupted, to be made again by the next call.

    Raises:
        AlreadyRunningError: Another process runs it.
        ConfigurationError: The source cannot be used, or the run exists with other settings.
        DataDirectoryError: The disk is full, or the control database cannot be used.
        PoolRefusedError: No runner can make the attempts.
        StoreError: ClickHouse did not take the results; the ledger has them.
    """
    with Ledger(plan.folder) as ledger:
        ledger.adopt(plan.identity)
        kill_processes(None, VariableMark(PROCESS_MARK_ENV, mark_prefix(plan.folder)))  # of a run without a pool
        offers.open_run(request.run_id, request.model_dump_json(), plan.making.parallel)
        offered = offers.episode_ids(request.run_id)
        ledger.recover(offered)
        if not ledger.has_tasks:
            ledger.add_tasks(plan.tasks)
        ledger.add_attempts(plan.attempts)
        writer = StoreWriter(store, ledger, plan.maker)
        writer.start()
        try:
            grade_waiting(plan.making, ledger, progress, stop)
            _PooledRun(plan, ledger, offers, progress, stop).execute(offered)
        finally:
            writer.close()
        return ledger.summary()


class PoolRefusedError(SpanloopError):
    """No runner can make the attempts of a run."""


class _PooledRun:
    def __init__(
        self, plan: RunPlan, ledger: Ledger, offers: Offers, progress: Progress, stop: threading.Event
    ) -> None:
        self._run_id: Final = plan.folder.name
        self._seed: Final = plan.making.seed
        self._window: Final = plan.making.parallel * _OFFERED_PER_SLOT
        self._ledger: Final = ledger
        self._offers: Final = offers
        self._progress: Final = progress
        self._stop: Final = stop
        self._running: dict[str, TaskAttempt] = {}
        """Attempts that the ledger knows as running, by episode id."""
        self._unoffered: list[TaskAttempt] = []
        self._refusals: set[Refusal] = set()
        self._refused_since_s: float | None = None
        """Since when no runner takes an attempt although one has refused; None while there is no such time."""
        self._database_error = ""

    def execute(self, offered: frozenset[str]) -> None:
        """Offer and collect until all attempts have ended.

        Args:
            offered: Episode ids of offers of an earlier process of this run.
        """
        self._progress.started(self._ledger.counts())
        self._running = {attempt.episode_id: attempt for attempt in self._ledger.running()}
        self._offers.remove(offered - self._running.keys())
        try:
            while not self._stop.is_set() and self._look():
                self._stop.wait(_POLL_S)
        except KeyboardInterrupt:
            self._progress.note("stopping; the runners interrupt their attempts")
            raise
        finally:
            self._withdraw()

    def _look(self) -> bool:
        """Collect and offer once; return whether the run goes on."""
        try:
            self._collect()
            self._offer()
            self._look_at_refusals()
        except DataDirectoryError as error:
            if not error.is_transient:
                raise
            if str(error) != self._database_error:
                self._progress.note(f"waiting for the control database: {error}")
            self._database_error = str(error)
            return True
        self._database_error = ""
        return bool(self._running)

    def _collect(self) -> None:
        finished = self._offers.finished(self._run_id)
        if finished:
            self._refused_since_s = None
        for episode_id, state, result in finished:
            attempt = self._running.pop(episode_id, None)
            if attempt is None:
                continue  # recorded by a look whose removal of the offer failed
            if state is not OfferState.ENDED:
                self._ledger.release(attempt, was_started=state is OfferState.INTERRUPTED)
                continue
            ended = EndedAttempt.of_json(attempt, *json.loads(result))
            self._ledger.end(attempt, ended.end)
            self._ledger.grade(ended)
            self._progress.ended(ended)
        self._offers.remove(each.episode_id for each in finished)
        for episode_id in self._offers.take_back(self._run_id):
            attempt = self._running.pop(episode_id, None)
            if attempt is not None:
                self._ledger.release(attempt)
                self._progress.note(
                    f"attempt {attempt.number} at {attempt.task.id} is made again: its runner is gone, or hangs"
                )

    def _offer(self) -> None:
        while len(self._running) < self._window:
            attempt = self._ledger.claim(self._seed)
            if attempt is None:
                break
            self._running[attempt.episode_id] = attempt
            self._unoffered.append(attempt)
        if self._unoffered:
            self._offers.offer(self._run_id, self._unoffered)
            self._unoffered.clear()

    def _look_at_refusals(self) -> None:
        """Tell refusals, and end a run that no runner can make.

        Raises:
            PoolRefusedError: No attempt is being made, or was taken, for some minutes after a refusal for good.
        """
        refusals = self._offers.refusals(self._run_id)
        for refusal in refusals:
            if refusal not in self._refusals:
                self._refusals.add(refusal)
                self._refused_since_s = None
                self._progress.note(f"the runner on {refusal.host} cannot make attempts of this run: {refusal.reason}")
        final = [refusal for refusal in refusals if refusal.is_final]
        if not final or self._offers.is_being_made(self._run_id):
            self._refused_since_s = None
            return
        now_s = time.monotonic()
        self._refused_since_s = self._refused_since_s or now_s
        if now_s - self._refused_since_s > _REFUSED_S:
            hosts = ", ".join(sorted({refusal.host for refusal in final}))
            raise PoolRefusedError(
                f"No runner makes the attempts of run {self._run_id}; those on {hosts} cannot: {final[0].reason}",
                next_step="Correct these hosts, or start a runner on another one; then the same command continues.",
            )

    def _withdraw(self) -> None:
        """Take all offers back, after what has ended meanwhile; what runners had begun is interrupted."""
        try:
            self._collect()
            begun = self._offers.close_run(self._run_id)
        except DataDirectoryError as error:
            self._progress.note(f"the offers of the run could not be taken back: {error}")
            return
        for episode_id, attempt in self._running.items():
            self._ledger.release(attempt, was_started=episode_id in begun)
