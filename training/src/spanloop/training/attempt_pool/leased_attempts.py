"""The attempts of one run that one process has leased: the ledger of the loop that makes them.

Invariant: an attempt is made only while its lease is held, by this process's clock; the reaper kills the agents when
the leases were not renewed, whatever this process does then.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from spanloop.evaluation.runner.attempt import AttemptEnd, EndedAttempt, TaskAttempt
from spanloop.evaluation.runner.ledger import AttemptState, Counts
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.leases import Term

from .offers import LeasedOffer, Offers, OfferState

log = logging.getLogger("spanloop.training.attempt_pool")

KEPT_SHARE: Final = 5 / 6
"""Agents are killed when this share of a lease has passed without a renewal; the rest is time to do it."""
_POLL_S: Final = 0.2
_PAUSE_S: Final = 1.0
IDLE_S: Final = 10.0
"""So long a process waits for a further offer of its run."""
TURN_S: Final = 60.0
"""After so long a run makes way for another one that waits."""

T = TypeVar("T")


class LeasedAttempts:
    """Leases offers of one run, renews the leases, and records what became of the attempts.

    Args:
        offers: Of the control database.
        run_id: The run.
        owner: Identity of this process.
        runner: Identity of the runner that it belongs to.
        lease_s: Duration of a lease.
        stop: Set when no further attempt may begin.
        keep_until: Lets the agents live until a time of ``time.monotonic()``; returns False when nobody watches them.
    """

    def __init__(
        self,
        offers: Offers,
        run_id: str,
        *,
        owner: str,
        runner: str,
        lease_s: float,
        stop: threading.Event,
        keep_until: Callable[[float], bool],
    ) -> None:
        self._offers: Final = offers
        self._run_id: Final = run_id
        self._owner: Final = owner
        self._runner: Final = runner
        self._lease_s: Final = lease_s
        self._stop: Final = stop
        self._keep_until: Final = keep_until
        self._term: Final = Term(lease_s, margin_s=(1 - KEPT_SHARE) * lease_s)
        self._claiming: Final = threading.Lock()
        self._lock: Final = threading.Lock()
        self._leased: dict[str, LeasedOffer] = {}
        self._began_s: Final = time.monotonic()
        self._is_over = False
        self.done = 0
        """Attempts whose ends were recorded."""

    def beat(self) -> bool:
        """Renew the leases; return False when that is of no use any more."""
        with self._lock:
            before = frozenset(self._leased)
        began_s = self._term.now_s()
        try:
            held = self._offers.renew(self._run_id, self._owner, self._lease_s)
        except DataDirectoryError as error:
            log.warning("run %s: the leases could not be renewed: %s", self._run_id, error)
            if not self._term.is_valid:
                self._stop.set()
            return self._term.is_valid
        if not self._keep_until(time.monotonic() + KEPT_SHARE * self._lease_s):
            self._stop.set()
            return False
        self._term.renewed(began_s)
        with self._lock:
            for episode_id in before - held:
                if self._leased.pop(episode_id, None) is not None:
                    log.info("run %s: the run has taken episode %s back", self._run_id, episode_id)
        return True

    def close(self) -> None:
        """Give back what has no recorded end."""
        with self._lock:
            left = [each.attempt for each in self._leased.values()]
        for attempt in left:
            self.release(attempt)

    def counts(self) -> Counts:
        """Return zeros: the run's process counts."""
        return Counts(0, 0)

    def claim(self, seed: int) -> TaskAttempt | None:  # noqa: ARG002 - an offer has its seed
        """Lease the next offer, and wait for one; None when the run has none, or another run's turn has come."""
        with self._claiming:
            idle_until_s = time.monotonic() + IDLE_S
            while not self._stop.is_set() and not self._is_over:
                leased = self._patiently(lambda: self._offers.lease(self._run_id, self._owner, self._lease_s))
                if leased is not None:
                    with self._lock:
                        self._leased[leased.attempt.episode_id] = leased
                    if self._others_wait():
                        self._is_over = True
                    return leased.attempt
                if not self._leased and (time.monotonic() > idle_until_s or self._is_closed()):
                    self._is_over = True
                else:
                    self._stop.wait(_POLL_S)
        return None

    def holds(self, attempt: TaskAttempt) -> bool:
        """Whether this process still has the attempt's lease."""
        return attempt.episode_id in self._leased and self._term.is_valid

    def release(self, attempt: TaskAttempt, *, was_started: bool = True) -> None:
        """Give an attempt back, which the run offers again."""
        self._finish(attempt, OfferState.INTERRUPTED if was_started else OfferState.RETURNED)

    def end(self, attempt: TaskAttempt, end: AttemptEnd) -> None:
        """Do nothing: the end is recorded with the verdict."""

    def grade(self, ended: EndedAttempt) -> None:
        """Record the end of an attempt and its verdict."""
        verdict = "" if ended.verdict is None else json.dumps(ended.verdict)
        result = json.dumps([json.dumps(ended.end), verdict, ended.grading_error])
        if self._finish(ended.attempt, OfferState.ENDED, result):
            self.done += 1

    def in_state(self, state: AttemptState, *, limit: int) -> list[EndedAttempt]:  # noqa: ARG002
        """Return nothing: no attempt waits here for a grader of another process."""
        return []

    def _finish(self, attempt: TaskAttempt, state: OfferState, result: str = "") -> bool:
        with self._lock:
            leased = self._leased.get(attempt.episode_id)
        is_recorded = leased is not None and self._patiently(lambda: self._offers.finish(leased, state, result))
        with self._lock:
            self._leased.pop(attempt.episode_id, None)
        if not is_recorded:
            log.info("run %s: episode %s is not this runner's any more", self._run_id, attempt.episode_id)
        return is_recorded

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call, and again while the control database is away and the leases are held."""
        while True:
            try:
                return call()
            except DataDirectoryError as error:
                if not error.is_transient or not self._term.is_valid:
                    raise
            time.sleep(_PAUSE_S)

    def _is_closed(self) -> bool:
        return self._patiently(lambda: self._offers.request_of(self._run_id)) is None

    def _others_wait(self) -> bool:
        if time.monotonic() - self._began_s < TURN_S:
            return False
        return any(run_id != self._run_id for run_id in self._offers.waiting_runs(self._runner))
