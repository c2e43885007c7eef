"""Counts of what a dataset accepts and rejects."""

from collections.abc import Mapping
from typing import NamedTuple


def counts_text(counts: Mapping[str, int]) -> str:
    """Return names with their counts, sorted by name."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


class Tally(NamedTuple):
    """Numbers of accepted items, and of rejected ones by reason."""

    accepted: int
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of input items."""
        return self.accepted + sum(self.rejected.values())

    def __str__(self) -> str:
        reasons = counts_text(self.rejected)
        return f"{self.accepted} of {self.total} accepted" + (f" (rejected: {reasons})" if reasons else "")
