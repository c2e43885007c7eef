"""What was sent and what became of it: the one account that every fault is measured by.

Every span has an id that is sent for the first time once. Each time that a client sends it is an *attempt*, which is
acknowledged (200), refused (an answer that says that nothing was taken) or unknown (the
connection ended without an answer). Afterwards the ledger is compared with what can be found: rows and dead letters.

- lost: acknowledged, and neither stored nor a dead letter.
- unexpected: stored, and never attempted, or refused at every attempt.
- duplicated: stored more often than attempts that may have been taken. OTLP is at-least-once: a client that sends a
  request again because its answer was lost makes a new attempt, and both may be stored (the converters leave such a
  copy out as ``duplicate_span``). What the collector itself sends again, to ClickHouse, must never show.

The file is appended to before a request leaves and after its answer came, one line for each: a letter and the ids.
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
    """Spans, counted by id; an id counts once in each column."""

    attempted: int
    acknowledged: int
    refused: int
    """Attempted, and refused every time."""
    unknown: int
    """Attempted, never acknowledged, and at least once without an answer."""
    stored: int
    """Rows and dead letters, copies included."""
    resent: int
    """Attempts beyond the first that may have been taken: copies that a client asks for."""
    lost: int
    unexpected: int
    duplicated: int

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._asdict().items())

    @property
    def is_clean(self) -> bool:
        """Whether nothing acknowledged is lost, and nothing is there that should not be."""
        return not (self.lost or self.unexpected or self.duplicated)


class Ledger:
    """An append-only account; safe to share between threads.

    Args:
        path: The file, made new.
        first_id: Ids count upwards from here.
    """

    def __init__(self, path: Path, first_id: int = 1) -> None:
        self._file = path.open("x", encoding="ascii")
        self._lock = threading.Lock()
        self._next_id = first_id
        self.path = path

    def new_ids(self, count: int) -> tuple[int, ...]:
        """Ids that were never given before."""
        with self._lock:
            first, self._next_id = self._next_id, self._next_id + count
        return tuple(range(first, first + count))

    def attempted(self, ids: Iterable[int]) -> None:
        """They are about to leave."""
        self._note(_ATTEMPTED, ids)

    def acknowledged(self, ids: Iterable[int]) -> None:
        """The answer says that they are kept."""
        self._note(_ACKNOWLEDGED, ids)

    def refused(self, ids: Iterable[int]) -> None:
        """The answer says that nothing was taken."""
        self._note(_REFUSED, ids)

    def unknown(self, ids: Iterable[int]) -> None:
        """They left, and no answer came."""
        self._note(_UNKNOWN, ids)

    def snapshot(self, path: Path) -> Path:
        """The account as it would be if everything ended now: what has no outcome yet is unknown."""
        with self._lock:
            lines = self.path.read_text(encoding="ascii").splitlines(keepends=True)
        open_ids: Counter[int] = Counter()
        for line in lines:
            outcome, *ids = line.split()
            (open_ids.update if outcome == _ATTEMPTED else open_ids.subtract)(map(int, ids))
        lines.extend(f"{_UNKNOWN} {each}\n" for each in open_ids.elements())
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


def balance(path: Path, found: Mapping[int, int]) -> Balance:
    """Compare a ledger's file with how often each id was found.

    Raises:
        ValueError: An outcome without its attempt: the test's own book-keeping is wrong.
    """
    outcomes: dict[str, Counter[int]] = {each: Counter() for each in (_ATTEMPTED, _ACKNOWLEDGED, _REFUSED, _UNKNOWN)}
    for line in path.read_text(encoding="ascii").splitlines():
        outcome, *ids = line.split()
        outcomes[outcome].update(map(int, ids))
    attempted, acknowledged, refused, unknown = outcomes.values()
    settled = acknowledged + refused + unknown
    if settled != attempted:
        wrong = sorted({*(settled - attempted), *(attempted - settled)})
        raise ValueError(f"ids {wrong[:10]} of {path}: expected one outcome for each attempt")
    taken = acknowledged + unknown
    return Balance(
        attempted=len(attempted),
        acknowledged=len(acknowledged),
        refused=len(set(attempted) - set(taken)),
        unknown=len(set(unknown) - set(acknowledged)),
        stored=sum(found.values()),
        resent=taken.total() - len(taken),
        lost=sum(not found.get(each) for each in acknowledged),
        unexpected=sum(not taken[each] for each in found),
        duplicated=sum(max(0, copies - taken[each]) for each, copies in found.items() if taken[each]),
    )


def total(balances: Iterable[Balance]) -> Balance:
    """Of many small runs, each with a ledger of its own."""
    return Balance(*map(sum, zip(*balances, strict=True)))
