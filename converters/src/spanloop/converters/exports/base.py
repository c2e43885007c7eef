"""Kinds of exports, their options and results.

Invariant: every row of input is accepted or rejected with a reason: ``accepted + Σ rejected`` is the number of rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import polars as pl


class Source(StrEnum):
    """The table that an export reads."""

    TRANSITIONS = "transitions"
    TRAJECTORIES = "trajectories"


@dataclass(frozen=True)
class ExportOptions:
    """Choices; each kind looks at those that its module speaks of."""

    min_reward: float | None = None
    """Take episodes with at least this reward; None takes those whose outcome is success."""
    margin: float = 0.0
    """By how much a preferred action must be better, in mean reward."""
    credit: str = ""
    """A method of ``credit.CREDIT_METHODS``; empty leaves credit out."""
    gamma: float = 1.0
    """For methods that discount."""


class Made(NamedTuple):
    """The exported rows of some groups, and the counts of accepted and rejected ones."""

    rows: pl.DataFrame | list[str]
    """A frame for Parquet, or lines for JSONL."""
    accepted: int
    rejected: Mapping[str, int]
    """Reason → rows of input."""


class Kind(NamedTuple):
    """One kind of export."""

    source: Source
    suffix: str
    """``parquet`` or ``jsonl``."""
    make: Callable[[pl.DataFrame, ExportOptions], Made]
    """From rows of the source, whole groups of whole episodes, with the episode's ``outcome``."""
    readme: str = ""
    """Content of a ``README.md`` beside the data; empty for none."""
