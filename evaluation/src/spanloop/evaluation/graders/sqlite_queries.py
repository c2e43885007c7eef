"""Run queries of answers on a SQLite database, and compare their rows.

Invariant: the database is opened read-only, everything but reading is refused, and each query has limits of rows, work
and time. Rows are compared as a multiset, or in order; numbers are compared with a tolerance. The metric is the
execution accuracy of Spider: Yu et al., 2018, https://arxiv.org/abs/1809.08887.
"""

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from spanloop.converters.rewards.match import fenced

Row = tuple[object, ...]

_ALLOWED: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_STEPS_A_CHECK: Final = 10_000
_ORDERED: Final = re.compile(r"\border\s+by\b[^()]*$", re.IGNORECASE)
_VALUE_BYTES: Final = 16 << 20
"""Most bytes of one value of a row."""


class QueryLimits(NamedTuple):
    """What one query may cost."""

    most_rows: int = 100_000
    most_steps: int = 50_000_000
    """Virtual machine instructions of SQLite, about a second."""
    timeout_s: float = 60.0


def query_rows(database: Path, query: str, limits: QueryLimits) -> list[Row]:
    """What one query brings.

    Raises:
        sqlite3.Error: When it does not run, writes, or works for too long.
        ValueError: When it brings too many rows.
    """
    left = limits.most_steps // _STEPS_A_CHECK
    deadline_s = time.monotonic() + limits.timeout_s

    def check() -> int:
        nonlocal left
        left -= 1
        return left < 0 or time.monotonic() > deadline_s

    uri = f"file:{quote(str(database.absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
        connection.set_authorizer(_authorise)
        connection.set_progress_handler(check, _STEPS_A_CHECK)
        found: list[Row] = connection.execute(query).fetchmany(limits.most_rows + 1)
    if len(found) > limits.most_rows:
        raise ValueError(f"the query brings more than {limits.most_rows} rows")
    return found


def is_ordered(query: str) -> bool:
    """Whether the query orders its result."""
    return bool(_ORDERED.search(query))


def _authorise(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def query_in(answer: str) -> str:
    """The query in an answer: its last code fence, or the whole text, without a final semicolon."""
    return fenced(answer).rstrip().rstrip(";")


def same_rows(got: Sequence[Row], expected: Sequence[Row], *, in_order: bool) -> bool:
    """Whether two results hold the same rows, numbers to nine digits."""
    ours, theirs = [_comparable(row) for row in got], [_comparable(row) for row in expected]
    return ours == theirs if in_order else Counter(ours) == Counter(theirs)


def _comparable(row: Row) -> Row:
    return tuple(float(f"{value:.9g}") if isinstance(value, int | float) else value for value in row)
