"""Replay: how many rows of episodes that an ancestor learned from are trained on again, beside new ones.

Invariant: a unit with a new episode is always kept. Units of replayed episodes only are added in the order of a hash of
seed and unit as long as the share of replayed rows stays within the ratio; none that would fit is left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..seeded_order import seeded_order


class UnitRows(NamedTuple):
    """The rows of a group or an episode."""

    unit: str
    rows: int
    replayed_rows: int
    """Rows of episodes that an ancestor was trained on."""

    @property
    def is_replayed(self) -> bool:
        """Whether no episode of the unit is new."""
        return self.replayed_rows == self.rows


def kept_by_replay(units: Sequence[UnitRows], ratio: float, seed: int) -> list[bool]:
    """Return which units are kept, parallel to ``units``.

    Args:
        units: With at least one row each.
        ratio: Largest share of replayed rows, 0 to 1.
        seed: Decides which replayed units are kept.
    """
    kept = [not unit.is_replayed for unit in units]
    rows = sum(unit.rows for unit, is_kept in zip(units, kept, strict=True) if is_kept)
    replayed = sum(unit.replayed_rows for unit, is_kept in zip(units, kept, strict=True) if is_kept)
    # each kept unit leaves less room for the next one, so a unit that does not fit never will
    for index in seeded_order([unit.unit for unit in units], seed):
        unit = units[index]
        if not kept[index] and replayed + unit.rows <= ratio * (rows + unit.rows):
            kept[index] = True
            rows += unit.rows
            replayed += unit.rows
    return kept
