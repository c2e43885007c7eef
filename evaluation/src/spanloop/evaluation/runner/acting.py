"""An agent whose attempts act in an environment: one episode for each attempt, closed when the attempt ends.

Invariant: an attempt whose environment failed never counts as finished, whatever the agent made of it; its error is the
environment's sentence. The verdict is the environment's where no grader is configured. An environment that fails in one
attempt after the other ends the run.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from spanloop.converters.rewards import SUCCESS_THRESHOLD
from spanloop.evaluation.environments import Outcome
from spanloop.evaluation.environments.endpoint import Endpoint, serving
from spanloop.evaluation.environments.pool import EnvironmentPool, PoolSettings
from spanloop.evaluation.graders import Verdict
from spanloop.foundation.errors import SpanloopError
from spanloop.semconv.environment import ENVIRONMENT_SESSION_ENV, ENVIRONMENT_URL_ENV

from .agent import Agent
from .attempt import AttemptEnd, EndState, TaskAttempt

FAILED_IN_A_ROW: Final = 4
"""So many different attempts whose environment failed, and none between them whose environment did not, end a run."""


class EnvironmentBrokenError(SpanloopError):
    """Raised when an environment failed in several attempts in a row; the same call makes them again."""


class FailuresInARow:
    """Counts attempts whose environment failed since the last one whose environment did not; safe between threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._attempts: set[tuple[int, int]] = set()

    def worked(self) -> None:
        """Begin to count anew."""
        with self._lock:
            self._attempts.clear()

    def failed(self, attempt: TaskAttempt, error: str) -> None:
        """Count an attempt; a further start of the same one counts once, so a single bad task ends no run.

        Raises:
            EnvironmentBrokenError: There are too many.
        """
        with self._lock:
            self._attempts.add((attempt.task_number, attempt.number))
            count = len(self._attempts)
        if count >= FAILED_IN_A_ROW:
            raise EnvironmentBrokenError(
                f"The environment failed in {count} attempts in a row, so the run stops. The last one: {error}",
                next_step="Start or correct the environment, or raise its timeouts; the same command continues, and "
                "makes these attempts again.",
            )


class ActingAgent:
    """Gives each attempt of another agent an episode.

    Args:
        agent: Makes the attempts.
        pool: The environments.
        url: Where the agent finds them.
    """

    def __init__(self, agent: Agent, pool: EnvironmentPool, url: str) -> None:
        self._agent: Final = agent
        self._pool: Final = pool
        self._url: Final = url

    def attempt(self, attempt: TaskAttempt, should_stop: Callable[[], bool]) -> AttemptEnd | None:
        """Make an attempt; return None when it was interrupted.

        Raises:
            ConfigurationError: No attempt can be made, or no process of the environment can be started.
        """
        started_us, started_s = time.time_ns() // 1_000, time.monotonic()
        session = self._pool.open({**attempt.task.fields, "task_id": attempt.task.id}, attempt.seed, should_stop)
        end: AttemptEnd | None
        try:
            if session.outcome.failure:
                end = AttemptEnd(EndState.CRASHED, started_us, round((time.monotonic() - started_s) * 1_000))
            else:
                variables = {ENVIRONMENT_URL_ENV: self._url, ENVIRONMENT_SESSION_ENV: session.key}
                end = self._agent.attempt(attempt._replace(variables=variables), should_stop)
        finally:
            self._pool.release(session)
        failure = session.outcome.failure
        if end is None or (failure and should_stop()):
            return None
        if failure:
            return end._replace(state=EndState.CRASHED, error=failure, outcome=session.outcome)
        return end._replace(outcome=session.outcome)

    def close(self) -> None:
        """End what is running; the pool is closed by its owner."""
        self._agent.close()


@contextmanager
def acting(
    make_agent: Callable[[], Agent], settings: PoolSettings | None, parallel: int
) -> Generator[Callable[[], Agent]]:
    """Yield what makes agents whose attempts act in an environment; without settings, ``make_agent`` itself.

    Args:
        make_agent: Makes an agent for each thread.
        settings: Of the environments; None without one.
        parallel: Attempts at the same time.

    Raises:
        ConfigurationError: The environment cannot be used.
    """
    if settings is None:
        yield make_agent
        return
    with EnvironmentPool(settings) as pool:
        pool.check()
        with serving(Endpoint(pool, parallel=2 * parallel)) as url:
            yield lambda: ActingAgent(make_agent(), pool, url)


def has_failed_environment(end: AttemptEnd) -> bool:
    """Whether the attempt's environment could not go on."""
    return end.outcome is not None and bool(end.outcome.failure)


def verdict_of_outcome(outcome: Outcome | None) -> Verdict | None:
    """Return the environment's verdict.

    None where it ended the episode with neither a reward nor a success: then the agent's own score counts. An episode
    that the agent left without any reward is a failure with the reward 0.
    """
    if outcome is None or (outcome.done and outcome.reward is None and outcome.success is None):
        return None
    reward = float(bool(outcome.success)) if outcome.reward is None else outcome.reward
    success = reward >= SUCCESS_THRESHOLD if outcome.success is None else outcome.success
    return Verdict.of(
        reward,
        is_success=success,
        reason=outcome.reason or _reason(outcome, reward),
        components=dict(outcome.components),
        steps=outcome.steps,
        done=outcome.done,
    )


def _reason(outcome: Outcome, reward: float) -> str:
    if not outcome.done:
        return f"The agent left the environment after {outcome.steps} steps, with rewards of {reward:g} in all."
    return f"The environment's rewards add up to {reward:g} in {outcome.steps} steps."
