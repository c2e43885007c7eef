"""The report of an import: counts of accepted items, and rejections with reason and place."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

ProgressCallback = Callable[[int, int], None]
"""Receives the amount done so far, and the total."""


class Place(NamedTuple):
    """The place of an item in the input."""

    file: str
    line: int = 0
    """Starts at 1; 0 for the file as a whole, and for an item of a document without lines."""
    item: str = ""
    """Path from the document's root to the item, such as ``spans[3]``; empty for the document itself."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}" + (f" {self.item}" if self.item else "")

    def at(self, item: str) -> "Place":
        """Return the place of an item below this one."""
        return self._replace(item=f"{self.item}.{item}" if self.item else item)


class Reject(NamedTuple):
    """Items that were not imported."""

    place: Place
    reason: str
    """The key of the report's counter, such as ``bad_trace_id``."""
    got: str
    expected: str
    items: int = 1
    """Number of items; the bad spans of a request are one rejection."""

    def __str__(self) -> str:
        count = f" ({self.items} items)" if self.items > 1 else ""
        return f"{self.place}: {self.reason}{count}: got {self.got}, expected {self.expected}"


class BadItemError(ValueError):
    """Raised for an item that cannot be converted.

    Args:
        reason: The key of the report's counter.
        where: Path from the item to the bad value, such as ``messages[2].role``; may be empty.
        got: The bad value.
        expected: A description of a valid value.
    """

    def __init__(self, reason: str, where: str, got: object, expected: str) -> None:
        super().__init__(f"{where}: got {got!r}, expected {expected}")
        self.reason = reason
        self.where = where
        self.got = f"{got!r:.120}"
        self.expected = expected

    def reject(self, place: Place) -> Reject:
        """Return a rejection of the item at ``place``."""
        return Reject(place.at(self.where) if self.where else place, self.reason, self.got, self.expected)


@dataclass
class Report:
    """Counts of one import: spans, log records and conversations are items, ``accepted + rejected_total = input``."""

    input: int = 0
    new: Counter[str] = field(default_factory=Counter[str])
    """New items by kind (``spans``, ``log records``, ``conversations``). ``scores`` and ``spans of conversations`` are
    counted too, but are not items of the input."""
    known: Counter[str] = field(default_factory=Counter[str])
    """By kind: items that are in the store already, or earlier in the input."""
    rejected: Counter[str] = field(default_factory=Counter[str])
    """Rejected items by reason."""

    @property
    def accepted(self) -> int:
        """Number of items that are in the store now."""
        return sum(self.new[kind] + self.known[kind] for kind in ITEM_KINDS)

    @property
    def rejected_total(self) -> int:
        """Number of rejected items."""
        return sum(self.rejected.values())


SPANS = "spans"
LOG_RECORDS = "log records"
CONVERSATIONS = "conversations"
SPANS_OF_CONVERSATIONS = "spans of conversations"
SCORES = "scores"
ITEM_KINDS = (SPANS, LOG_RECORDS, CONVERSATIONS)
"""Kinds that count as input."""
