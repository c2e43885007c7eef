"""Ask the budget before each attempt of a run, and hold running attempts to it.

Invariant: an attempt that would exceed the budget is not begun. Its cost is the largest average cost of an attempt that
was measured; until one was, one attempt runs at a time. The gateway refuses the model call that would exceed the tokens
that are left, and an attempt that runs at the end of the budget's time is interrupted. Both attempts have no end, and
are made again.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from spanloop.evaluation.runner.agent import Agent
from spanloop.evaluation.runner.attempt import AttemptEnd, TaskAttempt
from spanloop.evaluation.runner.planning import API_KEY_ENV
from spanloop.evaluation.runner.run import RunPlan
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir

from .budget import HOUR_S, Budget, BudgetSpentError, Spent, exceeded
from .loop_key import LoopKey
from .services import TokenMeter

_FRESH_S: Final = 0.5
_POLL_S: Final = 0.1
_NEXT: Final = "Raise [budget] in the file; then the same command continues. Everything that was done is stored."


class AttemptGate:
    """Counts what a loop spends, and refuses what would exceed its budget.

    Args:
        budget: The limits.
        data_dir: Of the gateway, whose tokens count.
        spent: By the steps before.
    """

    def __init__(self, budget: Budget, data_dir: DataDir, spent: Spent) -> None:
        self._budget = budget
        self._before = spent
        self._meter = TokenMeter(data_dir)
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._tokens, self._read_s = 0, 0.0
        self._running = self._ended = 0
        self._tokens_before_run = 0
        self._seconds_of_attempts = 0.0
        self._attempt = Spent()
        self._refusal = ""
        self._is_cut = False
        self._error: SpanloopError | None = None
        self._key = LoopKey(data_dir)
        self._key_tokens_before = 0

    @property
    def spent(self) -> Spent:
        """What all steps have spent, this one included."""
        return self._before.plus(self._read(), time.monotonic() - self._began_s)

    def restart(self, spent: Spent) -> None:
        """Begin a step, before which ``spent`` was spent."""
        with self._lock:
            self._before, self._began_s = spent, time.monotonic()
            self._tokens_before_run = self._meter.read()
            self._key_tokens_before = self._key.tokens
            self._running = self._ended = 0
            self._tokens, self._read_s = 0, 0.0

    def step_spent(self) -> Spent:
        """Return what the step has spent since `restart`."""
        with self._lock:
            self._read_s = 0.0
        return Spent(self._read(), time.monotonic() - self._began_s)

    def require(self, expected: Spent) -> None:
        """Check that a step of an expected cost may begin.

        Raises:
            BudgetSpentError: It would exceed the budget.
        """
        if refusal := exceeded(self._budget, self.spent, expected):
            raise BudgetSpentError(f"The budget ends the loop: {refusal}.", next_step=_NEXT)

    def check(self) -> None:
        """Check that no attempt was refused.

        Raises:
            BudgetSpentError: One was.
            SpanloopError: The gateway did not say whether it refused a call.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        if self._refusal:
            refusal, self._refusal, self._is_cut = self._refusal, "", False
            raise BudgetSpentError(f"The budget ends the loop: {refusal}.", next_step=_NEXT)

    @property
    def limits_attempts(self) -> bool:
        """Whether an attempt can exceed the budget."""
        return self._budget.limits_attempts

    def begin_attempt(self, should_stop: Callable[[], bool]) -> bool:
        """Wait until an attempt may begin; return False when none may any more, or ``should_stop`` says so."""
        while not should_stop() and not self._refusal:
            with self._lock:
                if self._ended or not self._running:
                    self._refusal = self._refusal or exceeded(self._budget, self.spent, self._expected())
                    if self._refusal:
                        return False
                    self._limit_calls(should_stop)
                    self._running += 1
                    return True
            time.sleep(_POLL_S)  # the first attempt shows what one costs
        return False

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of each attempt: the key whose calls the gateway limits, where tokens are limited."""
        return {} if self._before.tokens_left(self._budget) is None else {API_KEY_ENV: self._key.secret}

    def is_cut(self) -> bool:
        """Whether running attempts are interrupted: the time is over, or the gateway refused a call."""
        if not self._is_cut and (limit := self._limit_in_time()):
            self._cut(f"{limit}; the running attempts were interrupted")
        return self._is_cut

    def _limit_in_time(self) -> str:
        """Return which limit the passed time has reached; empty when none. It does not ask the gateway."""
        spent = self._before.plus(self._tokens, time.monotonic() - self._began_s)
        if self._budget.hours is not None and spent.seconds >= self._budget.hours * HOUR_S:
            return f"{self._budget.hours:g} hours are over"
        if self._budget.money is not None and spent.money(self._budget) >= self._budget.money:
            return f"{self._budget.money:g} in money is spent"
        return ""

    def _cut(self, refusal: str) -> None:
        self._refusal, self._is_cut = self._refusal or refusal, True

    def _limit_calls(self, should_stop: Callable[[], bool]) -> None:
        """Tell the gateway how many tokens are left, and learn whether it refused a call.

        Raises:
            SpanloopError: The gateway does not answer.
        """
        left = self._before.plus(0, time.monotonic() - self._began_s).tokens_left(self._budget)
        if left is None:
            return
        if self._key.limit(self._key_tokens_before + left, should_stop):
            tokens = self._before.tokens + self._key.tokens - self._key_tokens_before
            self._cut(f"{tokens:,} tokens are spent, and the gateway refused a call that would exceed the limit")

    def end_attempt(self, seconds: float, should_stop: Callable[[], bool]) -> None:
        """Count an attempt that has ended."""
        with self._lock:
            try:
                self._limit_calls(should_stop)
            except SpanloopError as error:
                self._error = error
                self._cut(error.what)
            self._running -= 1
            self._ended += 1
            self._seconds_of_attempts += seconds
            self._read_s = 0.0
            tokens = self._read() / (self._ended + self._running / 2)
            self._attempt = Spent(round(max(self._attempt.tokens, tokens)), self._seconds_of_attempts / self._ended)

    def _expected(self) -> Spent:
        """Return what the running attempts and one more cost at most."""
        parallel = self._running + 1
        return Spent(max(1, self._attempt.tokens * parallel), max(1.0, self._attempt.seconds))

    def _read(self) -> int:
        if time.monotonic() - self._read_s > _FRESH_S:
            self._tokens, self._read_s = self._meter.read() - self._tokens_before_run, time.monotonic()
        return self._tokens


class _GatedAgent:
    """An agent that asks the gate before each attempt."""

    def __init__(self, agent: Agent, gate: AttemptGate, variables: Mapping[str, str]) -> None:
        self._agent = agent
        self._gate = gate
        self._variables = variables

    def attempt(self, attempt: TaskAttempt, should_stop: Callable[[], bool]) -> AttemptEnd | None:
        """Make an attempt; return None when the gate does not let it begin."""
        if not self._gate.begin_attempt(should_stop):
            return None
        began_s = time.monotonic()
        attempt = attempt._replace(variables={**attempt.variables, **self._variables})
        try:
            end = self._agent.attempt(attempt, lambda: should_stop() or self._gate.is_cut())
        finally:
            self._gate.end_attempt(time.monotonic() - began_s, should_stop)
        # an attempt may have met the refusal, and gone on without an answer
        return None if self._gate.is_cut() else end

    def close(self) -> None:
        """End what is running."""
        self._agent.close()


def gated(plan: RunPlan, gate: AttemptGate, *, has_key: bool = False) -> RunPlan:
    """Return the plan with agents that ask the gate; unchanged where no budget limits an attempt.

    Args:
        plan: The run.
        gate: Of the loop.
        has_key: Whether the file gives the agent a key, which stays; the gateway does not limit its calls then.
    """
    if not gate.limits_attempts:
        return plan
    variables: Mapping[str, str] = {} if has_key else gate.variables
    making = plan.making
    return plan._replace(making=making._replace(make_agent=lambda: _GatedAgent(making.make_agent(), gate, variables)))
