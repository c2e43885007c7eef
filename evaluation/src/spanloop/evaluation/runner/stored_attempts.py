"""Store graded attempts in ClickHouse: a row of ``attempts`` each, and the verdict as the episode's reward.

Invariant: storing an attempt again changes nothing but its revision, so that a crash between the insert and the
ledger's mark does no harm. While ClickHouse is away nothing is lost: the ledger has what is to be stored.
"""

import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from spanloop.foundation.errors import SpanloopError, StoreError
from spanloop.foundation.tables.evaluation import ATTEMPTS
from spanloop.store import Store
from spanloop.store.scores import Score, add_scores

from .attempt import EndedAttempt
from .ledger import AttemptState, Ledger

REWARD_NAME: Final = "reward"
SUCCESS, FAILURE = "success", "failure"
_BATCH: Final = 100
_EVERY_S: Final = 1.0
_RETRY_S: Final = 2.0
_FINAL_TIMEOUT_S: Final = 60.0
_ERROR_CHARACTERS: Final = 4_096


class AttemptMaker:
    """Who made the attempts: what all their rows share."""

    def __init__(self, run_id: str, model: str, grader: str, grader_version: str) -> None:
        self._shared: Final = {
            "run_id": run_id,
            "model": model,
            "grader": grader,
            "grader_version": grader_version,
        }
        self._source: Final = f"grader {grader} {grader_version}".strip()

    def rows(self, ended: Sequence[EndedAttempt]) -> list[dict[str, Any]]:
        """Return the rows of the table ``attempts``."""
        revision = time.time_ns() // 1_000
        return [self._shared | _row(each) | {"revision": revision} for each in ended]

    def scores(self, ended: Sequence[EndedAttempt]) -> list[Score]:
        """Return the verdicts as rewards of their episodes."""
        return [
            Score(
                name=REWARD_NAME,
                value=each.verdict.score,
                label=SUCCESS if each.verdict.is_success else FAILURE,
                comment=each.verdict.evidence_json(),
                source=self._source[:200],
                episode_id=each.attempt.episode_id,
                task_id=each.attempt.task.id,
            )
            for each in ended
            if each.verdict is not None
        ]


def _row(ended: EndedAttempt) -> dict[str, Any]:
    attempt, end, verdict, grading_error = ended
    return {
        "task_id": attempt.task.id,
        "task_digest": attempt.task.digest,
        "attempt": attempt.number,
        "episode_id": attempt.episode_id,
        "trace_id": end.trace_id,
        "state": end.state.value,
        "exit_code": end.exit_code,
        "is_success": None if verdict is None else verdict.is_success,
        "reward": None if verdict is None else verdict.score,
        "evidence": "" if verdict is None else verdict.evidence_json(),
        "seed": attempt.seed,
        "started_at": end.started_us,
        "duration_ms": end.duration_ms,
        "error": (end.error or grading_error)[-_ERROR_CHARACTERS:],
        "interrupted_episode_ids": list(attempt.interrupted),
    }


class StoreWriter:
    """Stores what the ledger has to store, in a thread, until it is closed.

    Args:
        store: The store.
        ledger: The run's ledger.
        maker: Makes the rows.
    """

    def __init__(self, store: Store, ledger: Ledger, maker: AttemptMaker) -> None:
        self._store: Final = store
        self._ledger: Final = ledger
        self._maker: Final = maker
        self._closing: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name="attempt-writer", daemon=True)
        self._error: SpanloopError | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Store the rest, and end the thread.

        Raises:
            StoreError: ClickHouse did not take the rest within a minute; the ledger has it.
        """
        self._closing.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        if self._error is not None:
            raise StoreError(
                f"Results of the run are not stored yet: {self._error.what}",
                next_step="Nothing is lost; the same command stores them.",
            ) from self._error

    def _run(self) -> None:
        try:
            self._store_until_closed()
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._failure = error

    def _store_until_closed(self) -> None:
        deadline_s = float("inf")
        while True:
            is_last = self._closing.is_set()
            if is_last:
                deadline_s = min(deadline_s, time.monotonic() + _FINAL_TIMEOUT_S)
            try:
                while self._store_batch():
                    pass
                self._error = None
            except StoreError as error:
                self._error = error
            if is_last and (self._error is None or time.monotonic() > deadline_s):
                return
            if self._error is not None:
                time.sleep(_RETRY_S)
            else:
                self._closing.wait(_EVERY_S)

    def _store_batch(self) -> bool:
        """Store some attempts; return whether there may be more."""
        graded = self._ledger.in_state(AttemptState.GRADED, limit=_BATCH)
        if not graded:
            return False
        self._store.insert(ATTEMPTS.name, ATTEMPTS.from_dicts(self._maker.rows(graded)))
        if scores := self._maker.scores(graded):
            add_scores(self._store, scores)
        self._ledger.mark_stored(each.attempt for each in graded)
        return len(graded) == _BATCH
