"""Counts of one run of the pipeline."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from spanloop.converters import CONTEXT


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of one run. Episodes that did not change do not count."""

    spans: int = 0
    """New spans read."""
    episodes: int = 0
    """Episodes written: new ones and new revisions."""
    tombstones: int = 0
    """Episodes that joined another one."""
    transitions: int = 0
    trajectories: int = 0
    row_starts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason why a token row starts (``RowStart``) → token rows."""
    failures: int = 0
    trainable: int = 0
    """Transitions that may be trained on."""
    untrainable: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason → transitions that may not be trained on."""
    rejected: Mapping[str, int] = field(default_factory=dict[str, int])
    """Reason → rejected spans and scores, without the context spans of episodes."""
    open_joins: int = 0
    """Traces that share an id with another one and stay separate episodes for want of other evidence."""

    def __add__(self, other: "Report") -> "Report":
        return Report(
            spans=self.spans + other.spans,
            episodes=self.episodes + other.episodes,
            tombstones=self.tombstones + other.tombstones,
            transitions=self.transitions + other.transitions,
            trajectories=self.trajectories + other.trajectories,
            row_starts=_sum(self.row_starts, other.row_starts),
            failures=self.failures + other.failures,
            trainable=self.trainable + other.trainable,
            untrainable=_sum(self.untrainable, other.untrainable),
            rejected=_sum(self.rejected, other.rejected),
            open_joins=self.open_joins + other.open_joins,
        )


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))


def count_reasons(reasons: pl.Series) -> dict[str, int]:
    """Return reason → rows, without the empty reason and context."""
    counted = Counter(str(reason) for reason in reasons.to_list() if reason not in {"", CONTEXT})
    return dict(sorted(counted.items()))
