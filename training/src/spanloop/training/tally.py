"""Counts of what a dataset accepts and rejects."""

from collections.abc import Mapping
from typing import NamedTuple


class Tally(NamedTuple):
    """Numbers of accepted items, and of rejected ones by reason."""

    accepted: int
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of input items."""
        return self.accepted + sum(self.rejected.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        return f"{self.accepted} of {self.total} accepted" + (f" (rejected: {reasons})" if reasons else "")
