"""Copy verl's metrics of every step from its log file into the table ``training_metrics``.

verl writes one JSON line for each step; a line is complete with its newline. The table keeps the last write of a job,
step and name, so an attempt begins by sending the steps that earlier attempts logged. Metrics that were on disk before
a kill are not lost.
"""

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables.training import TRAINING_METRICS
from spanloop.store import Store

TABLE: Final = TRAINING_METRICS.name
_log: Final = logging.getLogger(__name__)
BATCH_REWARD: Final = "batch_reward"
"""Mean stored reward of the batch's rows: what the data earned when it was sampled, not what the new policy earns."""
_RENAMED: Final = {"critic/rewards/mean": BATCH_REWARD}
_LEFT_OUT: Final = frozenset({"actor/entropy_loss"})
"""verl's entropy in the scale of the loss aggregation; its coefficient is zero, and ``actor/entropy`` is in nats."""
_FILE_PREFIX: Final = "metrics-"
_VALIDATION: Final = "val/"
_MUST_BE_FINITE: Final = (
    "actor/pg_loss",
    "actor/loss",
    "actor/grad_norm",
    "critic/vf_loss",
    "critic/grad_norm",
    "train/loss",
    "train/grad_norm",
)


class StepMetrics(NamedTuple):
    """Metrics of one optimizer step, or the validation after it when that was logged later."""

    step: int
    values: Mapping[str, float]
    """Values by verl's names, but for :data:`BATCH_REWARD`; NaN where verl logged null."""

    @property
    def is_validation(self) -> bool:
        """Whether it has the loss of held-out rows alone."""
        return bool(self.values) and all(name.startswith(_VALIDATION) for name in self.values)

    @property
    def diverged(self) -> str:
        """Name of the first loss or gradient norm that is not finite; empty when all are finite."""
        broken = (name for name in _MUST_BE_FINITE if not math.isfinite(self.values.get(name, 0.0)))
        return next(broken, "")


def metrics_path(folder: Path, attempt: int) -> Path:
    """Return verl's log file of an attempt; verl truncates its file when it starts."""
    return folder / f"{_FILE_PREFIX}{attempt}.jsonl"


def logged_steps(folder: Path) -> list[StepMetrics]:
    """Return the steps of all attempts in their order; the last one counts when a step was repeated."""
    return [step for _, path in files_of_attempts(folder, _FILE_PREFIX) for step in MetricsTail(path).read()]


def final_metrics(folder: Path) -> list[tuple[str, float]]:
    """Return names and values of the metrics of the last step; those that are no number are left out."""
    last = max(reversed(logged_steps(folder)), key=lambda step: step.step)
    return [(name, value) for name, value in sorted(last.values.items()) if value == value]  # noqa: PLR0124 - NaN


def files_of_attempts(folder: Path, prefix: str) -> list[tuple[int, Path]]:
    """Return the files ``prefix`` + attempt + ``.jsonl`` of a job's folder with their attempts, in order.

    Ranks other than the first one add ``-`` and their number to the attempt.
    """
    files = folder.glob(f"{prefix}*.jsonl")
    return sorted((int(path.stem.removeprefix(prefix).partition("-")[0]), path) for path in files)


def parse_line(line: bytes) -> StepMetrics:
    """Parse one line of verl's file logger; orjson writes NaN and infinity as null."""
    content = json.loads(line)
    values = {
        _RENAMED.get(name, str(name)): math.nan if value is None else float(value)
        for name, value in content["data"].items()
        if (value is None or isinstance(value, int | float)) and name not in _LEFT_OUT
    }
    return StepMetrics(int(content["step"]), values)


class LineTail:
    """Reads a growing file, each complete line once.

    Args:
        path: The file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[bytes]:
        """Return the lines that were written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.splitlines()


class MetricsTail(LineTail):
    """Reads a growing metrics file."""

    def read(self) -> list[StepMetrics]:
        """Return the steps that were logged since the last call."""
        return _joined([parse_line(line) for line in self.lines()])


def _joined(lines: list[StepMetrics]) -> list[StepMetrics]:
    """Return one record for each step; verl logs the validation of a step in a line of its own."""
    steps: list[StepMetrics] = []
    for line in lines:
        if steps and steps[-1].step == line.step:
            steps[-1] = StepMetrics(line.step, {**steps[-1].values, **line.values})
        else:
            steps.append(line)
    return steps


class MetricsWriter:
    """Sends steps to the store; an unavailable store neither delays training nor loses steps.

    Args:
        store: An open store.
        job_id: The job that the metrics belong to.
    """

    def __init__(self, store: Store, job_id: str) -> None:
        self._store = store
        self._job_id = job_id
        self._pending: list[StepMetrics] = []

    def add(self, steps: list[StepMetrics]) -> None:
        """Send ``steps``, or keep them for the next call when the store is unreachable."""
        self._pending += steps
        try:
            self.flush()
        except StoreError as error:
            _log.warning("metrics of %d steps wait for the store: %s", len(self._pending), error.what)

    def flush(self) -> None:
        """Send all pending steps.

        Raises:
            StoreError: The store is unreachable; the steps stay pending.
        """
        if self._pending:
            self._store.insert(TABLE, to_frame(self._job_id, self._pending))
            self._pending.clear()


def to_frame(job_id: str, steps: list[StepMetrics]) -> pl.DataFrame:
    """Return rows of ``training_metrics``."""
    rows = [(step.step, name, value) for step in steps for name, value in step.values.items()]
    return TRAINING_METRICS.frame(
        {
            "job_id": [job_id] * len(rows),
            "step": [step for step, _, _ in rows],
            "name": [name for _, name, _ in rows],
            "value": [value for _, _, value in rows],
        }
    )
