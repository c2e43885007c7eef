"""Copy what each step did with each row from the job's files into the table ``training_samples``.

The subprocess writes positions in the dataset and numbers (``verl_plugin.sample_records``); the identity of a row comes
from the dataset. The table keeps one row for each job, step, position and attempt, however often a line is sent, and
queries take a step's newest attempt: a job that is killed and resumed counts each row once.
"""

import json
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables.training import TRAINING_SAMPLES
from spanloop.store import Store

from ...dataset.manifest import DATA_NAME
from ...dataset.row_age import AGE_COLUMNS
from ...dataset.strategies.sample_metrics import METRIC_COLUMNS
from .metrics import LineTail, StepMetrics, files_of_attempts

TABLE: Final = TRAINING_SAMPLES.name
_log: Final = logging.getLogger(__name__)
_FILE_PREFIX: Final = "samples-"
_IDENTITY: Final = ("episode_id", "revision", "trajectory_id", "row_number", "group_id", "policy_version")
_STEP_POSITIONS: Final = ("loss_mask", "sampled_steps", "sampled_starts", "sampled_ends")
_NUMBERS: Final = ("advantage", "old_logprob", "new_logprob", "importance_mean", "importance_max", "loss")
_LINE: Final = {name: TRAINING_SAMPLES.schema[name] for name in ("sample", "tokens", *_NUMBERS)}


class SampleLine(NamedTuple):
    """One line of a file: what one step of one attempt did with some rows."""

    attempt: int
    step: int
    columns: dict[str, list[Any]]


def samples_path(folder: Path, attempt: int) -> Path:
    """Return the file of an attempt."""
    return folder / f"{_FILE_PREFIX}{attempt}.jsonl"


def remove_samples(folder: Path) -> None:
    """Remove the files of all attempts of a job."""
    for _, path in files_of_attempts(folder, _FILE_PREFIX):
        path.unlink()


def read_rows(folder: Path) -> pl.DataFrame:
    """Return the identity, the age and the metrics of each row of a job's dataset, by the columns of the table.

    ``trained_steps`` are the steps of which the row's loss mask has a token.
    """
    path = folder / DATA_NAME
    present = pl.read_parquet_schema(path)
    optional = (*_IDENTITY, *AGE_COLUMNS, *METRIC_COLUMNS, *_STEP_POSITIONS, "weight")
    wanted: list[str] = [name for name in optional if name in present]
    lengths = [pl.col(f"{part}_token_ids").list.len().alias(f"{part}_tokens") for part in ("prompt", "response")]
    rows = pl.scan_parquet(path).select(*wanted, *lengths).collect().with_row_index("sample")
    steps = [_trained_steps(row) for row in rows.select(_STEP_POSITIONS).iter_rows()]
    return rows.drop(_STEP_POSITIONS).with_columns(trained_steps=pl.Series(steps, dtype=pl.List(pl.UInt32)))


def _trained_steps(row: tuple[Any, ...]) -> list[int]:
    mask, steps, starts, ends = row
    return [step for step, start, end in zip(steps, starts, ends, strict=True) if any(mask[start:end])]


class SampleWriter:
    """Sends records to the store; an unavailable store neither delays training nor loses records.

    Args:
        store: An open store.
        job_id: The job.
        kind: The name of the recipe.
        folder: Of the job, with its dataset.
    """

    def __init__(self, store: Store, job_id: str, kind: str, folder: Path) -> None:
        self._store = store
        self._job_id = job_id
        self._kind = kind
        self._folder = folder
        self._tails: dict[Path, LineTail] = {}
        self._pending: list[SampleLine] = []

    def poll(self) -> list[StepMetrics]:
        """Send what the attempts wrote since the last call; return the ages of the rows of these steps as metrics."""
        lines: list[SampleLine] = []
        for attempt, path in files_of_attempts(self._folder, _FILE_PREFIX):
            tail = self._tails.setdefault(path, LineTail(path))
            lines += [_parsed(attempt, line) for line in tail.lines()]
        self._pending += lines
        try:
            self.flush()
        except StoreError as error:
            _log.warning("records of %d steps wait for the store: %s", len(self._pending), error.what)
        return _ages(self._frame(lines)) if lines else []

    def flush(self) -> None:
        """Send all pending records.

        Raises:
            StoreError: The store is unreachable; the records stay pending.
        """
        if self._pending:
            self._store.insert(TABLE, self._frame(self._pending))
            self._pending.clear()

    @cached_property
    def _rows(self) -> pl.DataFrame:
        return read_rows(self._folder)

    def _frame(self, lines: Sequence[SampleLine]) -> pl.DataFrame:
        """Return rows of the table."""
        frames = [
            pl.DataFrame(line.columns, schema_overrides=_LINE).with_columns(
                attempt=pl.lit(line.attempt, TRAINING_SAMPLES.schema["attempt"]),
                step=pl.lit(line.step, TRAINING_SAMPLES.schema["step"]),
            )
            for line in lines
        ]
        records = pl.concat(frames, how="diagonal").with_columns(job_id=pl.lit(self._job_id), kind=pl.lit(self._kind))
        missing = [name for name in _NUMBERS if name not in records.columns]
        return records.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing).join(
            self._rows, on="sample", how="left", maintain_order="left"
        )


def _parsed(attempt: int, line: bytes) -> SampleLine:
    content = json.loads(line)
    return SampleLine(attempt, int(content.pop("step")), content)


def _ages(records: pl.DataFrame) -> list[StepMetrics]:
    """Return mean and maximum of each known age over the rows of each step, ``rows/age_days/mean`` and so on."""
    columns = [pl.col(name).cast(pl.Float64) for name in AGE_COLUMNS]
    grouped = records.group_by("step", maintain_order=True).agg(
        *(column.mean().name.suffix("/mean") for column in columns),
        *(column.max().name.suffix("/max") for column in columns),
    )
    return [
        StepMetrics(step, {f"rows/{name}": value for name, value in values.items() if value is not None})
        for values in grouped.iter_rows(named=True)
        for step in [int(values.pop("step"))]
    ]
