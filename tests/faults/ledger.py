"""The ledger of the fault tests: which spans were sent, and with which outcome.

Every span has its own id. Each time that a client sends it is an *attempt*, which is acknowledged (200), refused (a
response that states that nothing was accepted) or unknown (the connection ended without a response). Afterwards the
ledger is compared with the stored rows and dead letters.

- lost: acknowledged, and neither stored nor a dead letter.
- unexpected: stored, and never attempted, or refused at every attempt.
- duplicated: stored more often than attempts that may have been accepted. OTLP is at-least-once: a client that retries
  after a lost response makes a new attempt, and both may be stored (the converters leave such a copy out as
  ``duplicate_span``). A retry of the collector, to ClickHouse, must never be stored twice.

A line is appended before each request and after its response: a letter and the ids.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

_ATTEMPTED: Final = "?"
_ACKNOWLEDGED: Final = "+"
_REFUSED: Final = "-"
_UNKNOWN: Final = "~"


class Balance(NamedTuple):
    """Counts of span ids; an id counts at most once in each column."""

    attempted: int
    acknowledged: int
    refused: int
    """Attempted, and refused at every attempt."""
    unknown: int
    """Attempted, never acknowledged, and at least once without a response."""
    stored: int
    """Rows and dead letters, copies included."""
    resent: int
    """Attempts beyond the first that may have been accepted: copies that a client sends."""
    lost: int
    unexpected: int
    duplicated: int

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def is_clean(self) -> bool:
        """Whether no acknowledged span is lost, and no span is unexpected or duplicated."""
        return not (self.lost or self.unexpected or self.duplicated)


class Ledger:
    """An append-only ledger; safe to share between threads.

    Args:
        path: The file to create.
        first_id: Ids count upwards from here.
    """

    def __init__(self, path: Path, first_id: int = 1) -> None:
        self._file = path.open("x", encoding="ascii")
        self._lock = threading.Lock()
        self._next_id = first_id
        self.path = path

    def new_ids(self, count: int) -> tuple[int, ...]:
        """Return new ids."""
        with self._lock:
            first, self._next_id = self._next_id, self._next_id + count
        return tuple(range(first, first + count))

    def attempted(self, ids: Iterable[int]) -> None:
        """Record ids that are about to be sent."""
        self._note(_ATTEMPTED, ids)

    def acknowledged(self, ids: Iterable[int]) -> None:
        """Record ids whose response acknowledges them."""
        self._note(_ACKNOWLEDGED, ids)

    def refused(self, ids: Iterable[int]) -> None:
        """Record ids whose response refuses them."""
        self._note(_REFUSED, ids)

    def unknown(self, ids: Iterable[int]) -> None:
        """Record ids that were sent and got no response."""
        self._note(_UNKNOWN, ids)

    def snapshot(self, path: Path) -> Path:
        """Copy the ledger as if the run ended now: attempts without an outcome are unknown."""
        with self._lock:
            lines = self.path.read_text(encoding="ascii").splitlines(keepends=True)
        open_ids: Counter[int] = Counter()
        for line in lines:
            outcome, *ids = line.split()
            (open_ids.update if outcome == _ATTEMPTED else open_ids.subtract)(map(int, ids))
        lines.extend(f"{_UNKNOWN} {span_id}\n" for span_id in open_ids.elements())
        path.write_text("".join(lines), encoding="ascii")
        return path

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _note(self, outcome: str, ids: Iterable[int]) -> None:
        line = f"{outcome} {' '.join(map(str, ids))}\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()


def balance(path: Path, stored_counts: Mapping[int, int]) -> Balance:
    """Compare a ledger's file with how often each id is stored.

    Raises:
        ValueError: An attempt has no outcome, or an outcome no attempt, which is a bug of the test.
    """
    outcomes: dict[str, Counter[int]] = {name: Counter() for name in (_ATTEMPTED, _ACKNOWLEDGED, _REFUSED, _UNKNOWN)}
    for line in path.read_text(encoding="ascii").splitlines():
        outcome, *ids = line.split()
        outcomes[outcome].update(map(int, ids))
    attempted, acknowledged, refused, unknown = outcomes.values()
    settled = acknowledged + refused + unknown
    if settled != attempted:
        unbalanced_ids = sorted({*(settled - attempted), *(attempted - settled)})
        raise ValueError(f"ids {unbalanced_ids[:10]} of {path}: expected one outcome for each attempt")
    maybe_accepted = acknowledged + unknown
    return Balance(
        attempted=len(attempted),
        acknowledged=len(acknowledged),
        refused=len(set(attempted) - set(maybe_accepted)),
        unknown=len(set(unknown) - set(acknowledged)),
        stored=sum(stored_counts.values()),
        resent=maybe_accepted.total() - len(maybe_accepted),
        lost=sum(not stored_counts.get(span_id) for span_id in acknowledged),
        unexpected=sum(not maybe_accepted[span_id] for span_id in stored_counts),
        duplicated=sum(
            max(0, copies - maybe_accepted[span_id])
            for span_id, copies in stored_counts.items()
            if maybe_accepted[span_id]
        ),
    )


def total(balances: Iterable[Balance]) -> Balance:
    """Sum the balances of many small runs."""
    return Balance(*map(sum, zip(*balances, strict=True)))
