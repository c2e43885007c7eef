"""Make the attempts that a ledger has, grade each, and record both: the same loop for a run's process and a runner's.

Invariant: an attempt whose ledger does not hold it any more is interrupted, and what became of it is not recorded.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, NamedTuple, Protocol

from spanloop.evaluation.environments.pool import PoolSettings
from spanloop.evaluation.graders import Verdict
from spanloop.evaluation.graders.loading import LoadedGrader
from spanloop.foundation.errors import SpanloopError

from .acting import FailuresInARow, acting, has_failed_environment, verdict_of_outcome
from .agent import Agent, NotStartedError
from .answers import RecordedAttempts, last_message
from .attempt import AttemptEnd, EndedAttempt, EndState, TaskAttempt
from .ledger import AttemptState, Counts
from .served_model import Served, ServedModel

MOST_STARTS: Final = 4
"""An attempt that the gateway interrupts more often counts as crashed: it may be what ends the gateway's engine."""
_CHECK_S: Final = 0.2
_GRADE_BATCH: Final = 50
_QUEUED_PER_THREAD: Final = 8
"""Ended attempts that wait for a grader before agents wait too."""


class AttemptPlan(NamedTuple):
    """The plan by which attempts are made and graded."""

    parallel: int
    """Attempts at the same time."""
    seed: int
    make_agent: Callable[[], Agent]
    """Makes an agent for each of ``parallel`` threads."""
    grader: LoadedGrader | None = None
    recorded: RecordedAttempts | None = None
    """Reads the spans of attempts: for graders that need them, and for answers."""
    answers_from_spans: bool = False
    """Whether the answer is the last message; else it is in the output."""
    served: ServedModel | None = None
    """Watches the gateway's model; None for another endpoint."""
    environments: PoolSettings | None = None
    """The environment that the attempts act in; None without one."""


class AttemptLedger(Protocol):
    """The record in which attempts are claimed and ended."""

    def counts(self) -> Counts:
        """Return the numbers of attempts."""
        ...

    def claim(self, seed: int) -> TaskAttempt | None:
        """Claim the next attempt; None when there is none."""
        ...

    def holds(self, attempt: TaskAttempt) -> bool:
        """Whether the attempt is still this process's."""
        ...

    def release(self, attempt: TaskAttempt, *, was_started: bool = True) -> None:
        """Give a claimed attempt back."""
        ...

    def end(self, attempt: TaskAttempt, end: AttemptEnd) -> None:
        """Record the end of a claimed attempt."""
        ...

    def grade(self, ended: EndedAttempt) -> None:
        """Record the verdict on an ended attempt, or why there is none."""
        ...

    def in_state(self, state: AttemptState, *, limit: int) -> list[EndedAttempt]:
        """Return attempts that have ended and are in ``state``."""
        ...


class Progress(Protocol):
    """Is told what happens; called from several threads, one at a time."""

    def started(self, counts: Counts) -> None:
        """The tasks are read, and the attempts are known."""
        ...

    def ended(self, ended: EndedAttempt) -> None:
        """An attempt has its end and its verdict."""
        ...

    def note(self, text: str) -> None:
        """The user should know ``text``."""
        ...


def make_attempts(plan: AttemptPlan, ledger: AttemptLedger, progress: Progress, stop: threading.Event) -> None:
    """Grade what waits for it in the ledger, then make its attempts until it has none.

    Raises:
        SpanloopError: No further attempt can be made.
    """
    with acting(plan.make_agent, plan.environments, plan.parallel) as make_agent:
        _Making(plan._replace(make_agent=make_agent), ledger, progress, stop).execute()


def grade_waiting(plan: AttemptPlan, ledger: AttemptLedger, progress: Progress, stop: threading.Event) -> None:
    """Grade what waits for it in the ledger, and make no attempt.

    Raises:
        SpanloopError: A verdict cannot be recorded.
    """
    _Making(plan._replace(parallel=0), ledger, progress, stop).execute()


class _Making:
    def __init__(self, plan: AttemptPlan, ledger: AttemptLedger, progress: Progress, stop: threading.Event) -> None:
        self._plan = plan
        self._ledger = ledger
        self._progress = progress
        self._stop = stop
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._environment_failures = FailuresInARow()
        self._graders = ThreadPoolExecutor(max(plan.parallel, 1), "grader")
        self._queued = threading.BoundedSemaphore(plan.parallel * _QUEUED_PER_THREAD)

    def execute(self) -> None:
        """Grade what waits for it, then make the attempts.

        Raises:
            SpanloopError: No further attempt can be made.
        """
        self._progress.started(self._ledger.counts())
        threads = [
            threading.Thread(target=self._work, name=f"agent-{number}", daemon=True)
            for number in range(self._plan.parallel)
        ]
        with self._graders:
            self._grade_waiting()
            for thread in threads:
                thread.start()
            try:
                _join(threads)
            except KeyboardInterrupt:
                self._tell("stopping; a second Ctrl-C ends at once")
                self._stop.set()
                _join(threads)
                raise
        if self._failure is not None:
            raise self._failure

    def _should_stop(self) -> bool:
        return self._stop.is_set() or self._failure is not None

    def _work(self) -> None:
        """Make one attempt after the other, in a thread."""
        try:
            with closing(self._plan.make_agent()) as agent:
                while not self._should_stop() and self._attempt(agent):
                    pass
        except NotStartedError:
            pass  # the run stops
        except BaseException as error:  # noqa: BLE001 - it ends the run, which raises it
            self._fail(error)

    def _attempt(self, agent: Agent) -> bool:
        """Make the next attempt; return whether there was one."""
        served: Served | None = None
        if self._plan.served is not None:
            served = self._plan.served.wait(self._should_stop, self._tell)
            if served is None:
                return False
        attempt = self._ledger.claim(self._plan.seed)
        if attempt is None:
            return False
        try:
            end = agent.attempt(attempt, lambda: self._should_stop() or not self._ledger.holds(attempt))
        except BaseException:
            self._ledger.release(attempt, was_started=False)
            raise
        if end is None:
            is_lost = not self._ledger.holds(attempt)
            self._ledger.release(attempt)
            return is_lost
        if has_failed_environment(end) and len(attempt.interrupted) + 1 < MOST_STARTS:
            self._tell(f"attempt {attempt.number} at {attempt.task.id} is made again: {end.error}")
            self._ledger.release(attempt)
            self._environment_failures.failed(attempt, end.error)
            return True
        if end.outcome is not None and not end.outcome.failure:
            self._environment_failures.worked()
        if end.state is not EndState.FINISHED and self._is_interrupted(attempt, served):
            self._tell(f"the gateway failed during attempt {attempt.number} at {attempt.task.id}; it is made again")
            self._ledger.release(attempt)
            return True
        self._ledger.end(attempt, end)
        self._queued.acquire()
        self._graders.submit(self._grade, EndedAttempt(attempt, end)).add_done_callback(
            lambda _: self._queued.release()
        )
        return True

    def _is_interrupted(self, attempt: TaskAttempt, served: Served | None) -> bool:
        if self._plan.served is None or served is None or len(attempt.interrupted) + 1 >= MOST_STARTS:
            return False
        return not self._plan.served.is_unchanged(served)

    def _grade_waiting(self) -> None:
        """Grade attempts that ended in an earlier process."""
        while not self._should_stop():
            waiting = self._ledger.in_state(AttemptState.ENDED, limit=_GRADE_BATCH)
            if not waiting:
                return
            for _ in self._graders.map(self._grade, waiting):
                pass

    def _grade(self, ended: EndedAttempt) -> None:
        try:
            graded = self._graded(ended)
            if graded is None:
                return
            self._ledger.grade(graded)
        except BaseException as error:  # noqa: BLE001 - it ends the run, which raises it
            self._fail(error)
            return
        with self._lock:
            self._progress.ended(graded)

    def _graded(self, ended: EndedAttempt) -> EndedAttempt | None:
        """Return the attempt with its verdict; None when it is to be graded later."""
        if ended.end.state is not EndState.FINISHED:
            return ended
        grader = self._plan.grader
        if grader is None:
            return ended._replace(verdict=verdict_of_outcome(ended.end.outcome))
        try:
            verdict = self._verdict(grader, ended)
        except SpanloopError as error:
            return ended._replace(grading_error=str(error))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the border to a user's grader
            return ended._replace(grading_error=f"Grader {grader.name!r} raised {type(error).__name__}: {error}.")
        return None if verdict is None else ended._replace(verdict=verdict)

    def _verdict(self, grader: LoadedGrader, ended: EndedAttempt) -> Verdict | None:
        """Return the verdict; None when the run stops first. It raises what the grader raises."""
        task, answer, recorded = ended.attempt.task, ended.end.answer, self._plan.recorded
        if recorded is None:
            return grader.grade(task, answer)
        attempt = recorded.read(ended.attempt, ended.end, self._should_stop)
        if attempt is None:
            return None
        answer = last_message(attempt) if self._plan.answers_from_spans else answer
        return (
            grader.grade(task, answer) if grader.grade_attempt is None else grader.grade_attempt(task, answer, attempt)
        )

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error

    def _tell(self, text: str) -> None:
        with self._lock:
            self._progress.note(text)


def _join(threads: list[threading.Thread]) -> None:
    """Wait for the threads. In steps: polars restarts system calls that SIGINT interrupts, so a long wait sees none."""
    for thread in threads:
        while thread.is_alive():
            thread.join(_CHECK_S)
