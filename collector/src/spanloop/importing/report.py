"""What became of the input: every item is accepted or rejected by name, with the place that it came from."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where an item stands."""

    file: str
    line: int = 0
    """From 1; 0 when the file as a whole, or an item of a document that has no lines of its own, is meant."""
    item: str = ""
    """The way from the document's root to the item, such as ``spans[3]``; empty for the document itself."""

    def __str__(self) -> str:
        line = f":{self.line}" if self.line else ""
        return f"{self.file}{line}" + (f" {self.item}" if self.item else "")

    def at(self, item: str) -> "Place":
        """The place of an item below this one."""
        return self._replace(item=f"{self.item}.{item}" if self.item else item)


class Reject(NamedTuple):
    """Items that were not imported."""

    place: Place
    reason: str
    """One word to count by, such as ``bad_trace_id``."""
    got: str
    expected: str
    items: int = 1
    """Items that this stands for; a request names its bad spans together."""

    def __str__(self) -> str:
        many = f" ({self.items} items)" if self.items > 1 else ""
        return f"{self.place}: {self.reason}{many}: got {self.got}, expected {self.expected}"


class BadItemError(ValueError):
    """An item that cannot become spans.

    Args:
        reason: One word to count by.
        where: The way from the item to what is wrong with it, such as ``messages[2].role``; may be empty.
        got: What is there.
        expected: What should be.
    """

    def __init__(self, reason: str, where: str, got: object, expected: str) -> None:
        super().__init__(f"{where}: got {got!r}, expected {expected}")
        self.reason = reason
        self.where = where
        self.got = f"{got!r:.120}"
        self.expected = expected

    def reject(self, place: Place) -> Reject:
        """The same as a rejection of the item at ``place``."""
        return Reject(place.at(self.where) if self.where else place, self.reason, self.got, self.expected)


@dataclass
class Report:
    """Counts of one import: spans, log records and conversations are items, ``accepted + rejected_total = input``."""

    input: int = 0
    new: Counter[str] = field(default_factory=Counter[str])
    """By kind (``spans``, ``log records``, ``conversations``, ``scores``): what was not there before. The spans of a
    conversation count under ``spans of conversations``, which is no input of its own, as ``scores`` is not."""
    known: Counter[str] = field(default_factory=Counter[str])
    """By kind: what the store held already, or the input held before."""
    rejected: Counter[str] = field(default_factory=Counter[str])
    """By reason."""

    @property
    def accepted(self) -> int:
        """Items that are in the store now."""
        return sum(self.new[kind] + self.known[kind] for kind in ITEM_KINDS)

    @property
    def rejected_total(self) -> int:
        """Items that are not."""
        return sum(self.rejected.values())


SPANS = "spans"
LOG_RECORDS = "log records"
CONVERSATIONS = "conversations"
SPANS_OF_CONVERSATIONS = "spans of conversations"
SCORES = "scores"
ITEM_KINDS = (SPANS, LOG_RECORDS, CONVERSATIONS)
"""What counts as input."""
