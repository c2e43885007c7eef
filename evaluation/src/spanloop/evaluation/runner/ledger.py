"""The ledger of one run: its tasks, and for each attempt whether it is to be made, runs or has ended. SQLite.

Invariant: an attempt ends once. It is claimed in one transaction and ended in another, both synced to disk; an attempt
that was claimed and has no end when the run is opened again was interrupted, and is made again under a new episode id.
One process at a time has the ledger open.
"""

import fcntl
import json
import sqlite3
import threading
import uuid
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Self, cast

from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, DataDirectoryError
from spanloop.foundation.paths.directory import disk_error

from .attempt import AttemptEnd, EndedAttempt, TaskAttempt

LEDGER_NAME: Final = "ledger.db"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS run (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY, task_id TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, fields TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS attempts (
    task INTEGER NOT NULL REFERENCES tasks (number),
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',    -- AttemptState
    episode_id TEXT NOT NULL DEFAULT '',
    seed INTEGER NOT NULL DEFAULT 0,
    interrupted TEXT NOT NULL DEFAULT '[]',   -- JSON list of the episode ids of earlier starts
    ended TEXT NOT NULL DEFAULT '',           -- JSON of AttemptEnd
    verdict TEXT NOT NULL DEFAULT '',         -- JSON of Verdict; empty where nothing was graded
    grading_error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (task, attempt)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_state ON attempts (state, attempt, task);
"""
_SEEDS: Final = 1 << 31
"""Every sampler takes seeds below this."""
_NEXT: Final = """
SELECT attempts.task, attempt, task_id FROM attempts JOIN tasks ON tasks.number = attempts.task
WHERE state = 'pending' AND interrupted = '[]' ORDER BY attempt, attempts.task LIMIT 1
"""
_NEXT_INTERRUPTED: Final = """
SELECT attempts.task, attempt, task_id FROM attempts JOIN tasks ON tasks.number = attempts.task
WHERE state = 'pending' ORDER BY json_array_length(interrupted), attempt, attempts.task LIMIT 1
"""
_CLAIM: Final = """
UPDATE attempts SET state = 'running', episode_id = ?, seed = ? WHERE task = ? AND attempt = ?
RETURNING task, attempt, episode_id, interrupted, seed
"""
_RELEASE: Final = """
UPDATE attempts SET state = 'pending', episode_id = '', interrupted = ?
WHERE task = ? AND attempt = ? AND state = 'running' AND episode_id = ?
"""
_END: Final = """
UPDATE attempts SET state = 'ended', ended = ?
WHERE task = ? AND attempt = ? AND state = 'running' AND episode_id = ?
"""
_GRADE: Final = """
UPDATE attempts SET state = 'graded', verdict = ?, grading_error = ?
WHERE task = ? AND attempt = ? AND state = 'ended' AND episode_id = ?
"""
_ENDED: Final = """
SELECT task, attempt, episode_id, interrupted, seed, ended, verdict, grading_error FROM attempts
WHERE state = ? ORDER BY attempt, task LIMIT ?
"""
_REQUEUE: Final = """
UPDATE attempts SET state = 'pending', interrupted = json_insert(interrupted, '$[#]', episode_id), episode_id = ''
WHERE state = 'running' AND episode_id NOT IN (SELECT value FROM json_each(?))
"""
_RUNNING: Final = "SELECT task, attempt, episode_id, interrupted, seed FROM attempts WHERE state = 'running'"
_GRADE_AGAIN: Final = """
UPDATE attempts SET state = 'ended', grading_error = '' WHERE state IN ('graded', 'stored') AND grading_error != ''
"""
_ERASE: Final = """
UPDATE attempts SET
    ended = json_set(ended, '$[3]', '', '$[4]', '', '$[7]', NULL),
    verdict = CASE verdict WHEN '' THEN '' ELSE json_set(verdict, '$[2]', json('{}')) END,
    grading_error = ''
WHERE episode_id = ? AND ended != ''
"""
"""The answer, the error and the outcome of an `AttemptEnd`, and the evidence of a `Verdict`."""
_STARTED: Final = "SELECT 1 FROM attempts WHERE state != 'pending' OR interrupted != '[]' LIMIT 1"
_COUNTS: Final = """
SELECT count(*), count(*) FILTER (WHERE state IN ('graded', 'stored')) FROM attempts
"""
_STATES: Final = """
SELECT json_extract(ended, '$[0]') AS end_state, count(*) FROM attempts WHERE ended != ''
GROUP BY end_state ORDER BY end_state
"""
_VERDICTS: Final = """
SELECT
    count(*),
    count(*) FILTER (WHERE verdict != ''),
    count(*) FILTER (WHERE verdict != '' AND json_extract(verdict, '$[1]')),
    coalesce(sum(json_extract(verdict, '$[0]')) FILTER (WHERE verdict != ''), 0),
    count(*) FILTER (WHERE grading_error != '')
FROM attempts
"""


class AttemptState(StrEnum):
    """Where an attempt is on its way; each state follows the one before it."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"
    GRADED = "graded"
    """It has its verdict, or its grader failed, or there is no grader."""
    STORED = "stored"
    """Its row is in ClickHouse."""


class Counts(NamedTuple):
    """Numbers of attempts."""

    total: int
    done: int
    """Graded, or ended without a need for a grader."""


class Summary(NamedTuple):
    """What became of the attempts."""

    attempts: int
    states: Mapping[str, int]
    """Of `EndState` → number; attempts without an end are missing."""
    graded: int
    """With a verdict."""
    successes: int
    score_sum: float
    grading_failures: int
    """Finished, and the grader gave no verdict."""


class Ledger:
    """The ledger in a folder, which is created. A context manager; safe to share between threads.

    Raises:
        AlreadyRunningError: Another process has it open.
        DataDirectoryError: It cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._lock: Final = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = (folder / "lock").open("w")
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._lock_file.close()
            raise AlreadyRunningError(
                f"Run {folder.name!r} is running already.", next_step="Wait for it, or name another run with --run."
            ) from error
        except OSError as error:
            raise disk_error(folder, error) from error
        self._database = sqlite3.connect(folder / LEDGER_NAME, isolation_level=None, check_same_thread=False)
        with self._lock, self._disk_errors():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.executescript(_SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._database.close()
            self._lock_file.close()

    def adopt(self, identity: Mapping[str, str]) -> None:
        """Record what the run is; a run with an attempt that was started must be the same.

        Raises:
            ConfigurationError: It differs.
        """
        with self._writing() as database:
            if database.execute(_STARTED).fetchone() is None:
                for table in ("attempts", "tasks", "run"):
                    database.execute(f"DELETE FROM {table}")  # noqa: S608 - a constant
            database.executemany("INSERT OR IGNORE INTO run VALUES (?, ?)", list(identity.items()))
            stored = dict(cast("list[tuple[str, str]]", database.execute("SELECT name, value FROM run").fetchall()))
        for name, value in identity.items():
            if stored[name] != value:
                raise ConfigurationError(
                    f"Run {self._folder.name!r} has {name} {stored[name]!r}, and this command {value!r}.",
                    next_step="Give the same settings to continue it, or name another run with --run.",
                )

    @property
    def has_tasks(self) -> bool:
        """Whether all tasks were read."""
        with self._lock:
            return self._database.execute("SELECT 1 FROM run WHERE name = 'task_count'").fetchone() is not None

    def add_tasks(self, tasks: Iterable[Task]) -> int:
        """Add all tasks of the run, or none; return their number."""
        rows = ((task.id, task.digest, json.dumps(dict(task.fields))) for task in tasks)
        with self._writing() as database:
            database.executemany("INSERT INTO tasks (task_id, digest, fields) VALUES (?, ?, ?)", rows)
            number = int(database.execute("SELECT count(*) FROM tasks").fetchone()[0])
            database.execute("INSERT INTO run VALUES ('task_count', ?)", (str(number),))
        return number

    def add_attempts(self, attempts: int) -> None:
        """Make sure that each task has the attempts 1 to ``attempts``; there may be more of them already."""
        with self._writing() as database:
            for number in range(1, attempts + 1):
                database.execute(
                    "INSERT OR IGNORE INTO attempts (task, attempt) SELECT number, ? FROM tasks", (number,)
                )

    def recover(self, running: Iterable[str] = ()) -> int:
        """Make interrupted attempts pending, and ungraded ones ended, to be graded; return how many were interrupted.

        Args:
            running: Episode ids of attempts that are not interrupted, because another process makes them.
        """
        with self._writing() as database:
            interrupted = database.execute(_REQUEUE, (json.dumps(list(running)),)).rowcount
            database.execute(_GRADE_AGAIN)
        return interrupted

    def running(self) -> list[TaskAttempt]:
        """Return the attempts that are claimed and have no end."""
        with self._lock:
            return [self._attempt(*row) for row in self._database.execute(_RUNNING).fetchall()]

    def claim(self, seed: int) -> TaskAttempt | None:
        """Claim the next attempt under a new episode id; None when none is pending.

        First attempts come first, and attempts that were interrupted come last, the least often interrupted one first.

        Args:
            seed: Of the run; each attempt has its own, derived from it, its task and its number.
        """
        with self._writing() as database:
            row = database.execute(_NEXT).fetchone() or database.execute(_NEXT_INTERRUPTED).fetchone()
            if row is None:
                return None
            task, number, task_id = cast("tuple[int, int, str]", row)
            key = (uuid.uuid4().hex, _derived_seed(seed, task_id, number), task, number)
            return self._attempt(*database.execute(_CLAIM, key).fetchone())

    def release(self, attempt: TaskAttempt, *, was_started: bool = True) -> None:
        """Give a claimed attempt back: it was interrupted, or could not be started, and is made again."""
        interrupted = [*attempt.interrupted, attempt.episode_id] if was_started else attempt.interrupted
        self._move(attempt, _RELEASE, json.dumps(interrupted))

    def end(self, attempt: TaskAttempt, end: AttemptEnd) -> None:
        """Record the end of a claimed attempt."""
        self._move(attempt, _END, json.dumps(end))

    def grade(self, ended: EndedAttempt) -> None:
        """Record the verdict on an ended attempt, or why there is none."""
        verdict = "" if ended.verdict is None else json.dumps(ended.verdict)
        self._move(ended.attempt, _GRADE, verdict, ended.grading_error)

    def holds(self, attempt: TaskAttempt) -> bool:  # noqa: ARG002
        """Return True: while this process has the ledger open, its attempts are its own."""
        return True

    def mark_stored(self, attempts: Iterable[TaskAttempt]) -> None:
        """Record that the rows of graded attempts are in ClickHouse."""
        keys = [(attempt.task_number, attempt.number) for attempt in attempts]
        with self._writing() as database:
            database.executemany(
                "UPDATE attempts SET state = 'stored' WHERE task = ? AND attempt = ? AND state = 'graded'", keys
            )

    def erase(self, episode_ids: Iterable[str]) -> int:
        """Erase what the attempts of these episodes answered, from the file too; return how many they were."""
        with self._writing() as database:
            erased = database.executemany(_ERASE, [(episode_id,) for episode_id in episode_ids]).rowcount
        with self._lock, self._disk_errors():
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return erased

    def in_state(self, state: AttemptState, *, limit: int) -> list[EndedAttempt]:
        """Return attempts that have ended and are in ``state``."""
        with self._lock:
            rows = self._database.execute(_ENDED, (state, limit)).fetchall()
            return [self._ended(row) for row in rows]

    def counts(self) -> Counts:
        """Return the numbers of attempts."""
        with self._lock:
            return Counts(*self._database.execute(_COUNTS).fetchone())

    def summary(self) -> Summary:
        """Return what became of the attempts."""
        with self._lock:
            states = self._database.execute(_STATES).fetchall()
            row = self._database.execute(_VERDICTS).fetchone()
        attempts, graded, successes, score_sum, failures = cast("tuple[int, int, int, float, int]", row)
        return Summary(attempts, dict(states), graded, successes, float(score_sum), failures)

    def _attempt(self, task: int, number: int, episode_id: str, interrupted: str, seed: int) -> TaskAttempt:
        row = self._database.execute("SELECT task_id, fields, digest FROM tasks WHERE number = ?", (task,)).fetchone()
        task_id, fields, digest = cast("tuple[str, str, str]", row)
        found = Task(task_id, json.loads(fields), digest)
        return TaskAttempt(task, found, number, episode_id, tuple(json.loads(interrupted)), seed)

    def _ended(self, row: tuple[int, int, str, str, int, str, str, str]) -> EndedAttempt:
        return EndedAttempt.of_json(self._attempt(*row[:5]), *row[5:])

    def _move(self, attempt: TaskAttempt, statement: str, *values: str) -> None:
        """Change an attempt that is in the statement's state: an attempt that ended never ends again."""
        key = (attempt.task_number, attempt.number, attempt.episode_id)
        with self._writing() as database:
            changed = database.execute(statement, (*values, *key)).rowcount
        if changed != 1:
            raise RuntimeError(f"attempt {attempt.number} at task {attempt.task.id!r} is in another state:{statement}")

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """One transaction, on disk when the block ends."""
        with self._lock, self._disk_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    @contextmanager
    def _disk_errors(self) -> Generator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise DataDirectoryError(
                f"The ledger {self._folder / LEDGER_NAME} cannot be written: {error}.",
                next_step="Free disk space; then the same command continues the run.",
            ) from error


def _derived_seed(seed: int, task_id: str, number: int) -> int:
    text = json.dumps([seed, task_id, number])
    return int.from_bytes(sha256(text.encode()).digest()[:8]) % _SEEDS
