"""Let a version attempt the tasks of ``[evaluation]`` through the gateway, and evaluate what it did.

Invariant: a run belongs to a version, its settings and the content of its task file. One that was killed continues, and
one that is complete is not repeated: the champion's attempts serve every later comparison.
"""

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.evaluation.results import Evaluation, evaluate, reference_calls_of
from spanloop.evaluation.runner.attempt import EndedAttempt
from spanloop.evaluation.runner.ledger import Counts
from spanloop.evaluation.runner.planning import RunRequest, plan_run
from spanloop.evaluation.runner.stored_tasks import is_complete, tasks_of_run
from spanloop.evaluation.tasks import Rejected
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Evaluation as Settings
from spanloop.pipeline import run as convert
from spanloop.pipeline.conversion_settings import conversion_settings
from spanloop.store import Store
from spanloop.training.attempt_pool.pooled_run import run_requested
from spanloop.training.dataset.trained_tasks import trained_tasks
from spanloop.training.models.registry import ModelVersion

_DIGITS: Final = 8
_SHOWN_REJECTED: Final = 5
_EVERY: Final = 20
"""Attempts between two lines in the job's log."""


def ignore_attempts(done: int, total: int) -> None:
    """Report the attempts to nobody."""


class EvaluationRun(NamedTuple):
    """The run of one version."""

    version: ModelVersion
    settings: Settings
    digest: str
    """Of the settings and of the tasks' file."""

    @classmethod
    def of(cls, version: ModelVersion, settings: Settings) -> "EvaluationRun":
        """Return the run of ``version``."""
        source = Path(settings.tasks)
        content = source.read_bytes() if source.is_file() else b""
        identity = settings.model_dump_json(exclude={"parallel", "timeout_s", "pool"}).encode()
        return cls(version, settings, hashlib.sha256(identity + b"\0" + content).hexdigest()[:_DIGITS])

    @property
    def evaluation_name(self) -> str:
        """The same for all versions."""
        return f"evaluation-{self.digest}"

    @property
    def run_id(self) -> str:
        """Of the task runner."""
        return f"{self.version.name}-{self.version.version}-{self.digest}"

    def is_complete(self, data_dir: DataDir) -> bool:
        """Whether all attempts are made and stored."""
        return is_complete(data_dir.runs / self.run_id, self.settings.attempts)

    def request(self) -> RunRequest:
        """Return the request of the task runner."""
        return RunRequest(run_id=self.run_id, model=self.version.reference, **self.settings.model_dump())

    def make_attempts(
        self,
        data_dir: DataDir,
        store: Store,
        on_progress: Callable[[str], None],
        on_attempts: Callable[[int, int], None] = ignore_attempts,
    ) -> None:
        """Make the attempts that are missing; the gateway must serve the version.

        Raises:
            ConfigurationError: The tasks, the agent or the grader cannot be used.
            SpanloopError: The gateway or ClickHouse is away; the same call continues.
        """
        log = _Log(self.version.reference, on_progress, on_attempts)
        request = self.request()
        plan = plan_run(data_dir, request, store, on_reject=log.rejected)
        run_requested(data_dir, request, plan, store, progress=log, stop=threading.Event())

    def evaluate(self, data_dir: DataDir, store: Store, *, reward_floor: float) -> Evaluation:
        """Convert the spans and store the evaluation.

        Raises:
            EvaluationError: No attempt counts.
            StoreError: ClickHouse is unreachable.
        """
        convert(store, options=conversion_settings(data_dir.path, None).options)
        return evaluate(
            store,
            name=self.evaluation_name,
            model=self.version.reference,
            run_ids=[self.run_id],
            trained=trained_tasks(store, data_dir, self.version.reference),
            references=reference_calls_of(tasks_of_run(data_dir.runs / self.run_id)),
            reward_floor=reward_floor,
        )


class _Log:
    """Writes a line for each few attempts."""

    def __init__(
        self, reference: str, on_progress: Callable[[str], None], on_attempts: Callable[[int, int], None]
    ) -> None:
        self._reference = reference
        self._on_progress = on_progress
        self._on_attempts = on_attempts
        self._total = self._done = self._successes = self._rejected = 0

    def rejected(self, rejected: Rejected) -> None:
        self._rejected += 1
        if self._rejected <= _SHOWN_REJECTED:
            self._on_progress(f"no task: {rejected}")

    def started(self, counts: Counts) -> None:
        self._total, self._done = counts.total, counts.done
        if self._rejected:
            self._on_progress(f"{self._rejected} records of the source are no task; the others are attempted")
        self._on_progress(f"{self._reference} attempts the tasks: {self._total - self._done} of {self._total} to go")
        self._on_attempts(self._done, self._total)

    def ended(self, ended: EndedAttempt) -> None:
        self._done += 1
        self._successes += ended.verdict is not None and ended.verdict.is_success
        self._on_attempts(self._done, self._total)
        if self._done % _EVERY == 0 or self._done == self._total:
            self._on_progress(f"{self._reference}: {self._done} of {self._total} attempts, {self._successes} succeeded")

    def note(self, text: str) -> None:
        self._on_progress(text)
