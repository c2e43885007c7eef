"""Run a query and its reference on a SQLite database, and compare their rows; for the grader and the reward.

Invariant: the database is opened read-only, everything but reading is refused, and each query has limits of rows, work
and time. Rows are compared as a multiset, or in order where the reference orders them; integers exactly, other numbers
to nine digits. The metric is the
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

from spanloop.converters.rewards.comparison import fenced

from .base import GradingError

Row = tuple[object, ...]

_ALLOWED: Final = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_STEPS_A_CHECK: Final = 10_000
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|--[^\n]*|/\*.*?\*/", re.DOTALL)
_PARENTHESISED: Final = re.compile(r"\([^()]*\)")
_ORDER_BY: Final = re.compile(r"\border\s+by\b", re.IGNORECASE)
_FAILURES: Final = (sqlite3.Error, ValueError)
_VALUE_BYTES: Final = 16 << 20
"""Most bytes of one value of a row."""


class QueryLimits(NamedTuple):
    """What one query may cost."""

    most_rows: int = 100_000
    most_steps: int = 50_000_000
    """Virtual machine instructions of SQLite, about a second."""
    timeout_s: float = 60.0


class QueryComparison(NamedTuple):
    """The results of an answer's query and of the reference query."""

    query: str
    reference: str
    rows: Sequence[Row]
    """Empty when the query does not run."""
    expected_rows: Sequence[Row]
    in_order: bool
    """Whether the order counted."""
    is_same: bool
    error: str = ""
    """Why the answer's query does not run; empty when it runs."""


def compare_queries(
    database: Path, answer: str, reference: str, limits: QueryLimits, *, task_id: str, in_order: bool | None = None
) -> QueryComparison:
    """Compare the rows of the query in ``answer`` with those of ``reference``.

    Args:
        database: Path of the SQLite database.
        answer: Holds the query in its last code fence, or is the query.
        reference: The same, for the reference query.
        limits: Apply to each of the two.
        task_id: Stands in the error.
        in_order: Whether the order counts; None takes it from the reference.

    Raises:
        GradingError: The reference query does not run: that is no fault of the answer.
    """
    query, reference = query_in(answer), query_in(reference)
    ordered = is_ordered(reference) if in_order is None else in_order
    try:
        expected = query_rows(database, reference, limits)
    except _FAILURES as error:
        raise GradingError(
            f"The reference query of task {task_id!r} does not run on {database}: {error}.",
            next_step="Check the reference query and the path of the database.",
        ) from error
    try:
        got = query_rows(database, query, limits)
    except _FAILURES as error:
        return QueryComparison(query, reference, [], expected, ordered, is_same=False, error=str(error))
    is_same = same_rows(got, expected, in_order=ordered)
    return QueryComparison(query, reference, got, expected, ordered, is_same)


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
    """Return whether the query orders its result: ``ORDER BY`` of a subquery or a window does not count."""
    text = _QUOTED.sub(" ", query)
    while (outside := _PARENTHESISED.sub(" ", text)) != text:
        text = outside
    return bool(_ORDER_BY.search(text))


def _authorise(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def query_in(answer: str) -> str:
    """The query in an answer: its last code fence, or the whole text, without a final semicolon."""
    return fenced(answer).rstrip().rstrip(";")


def same_rows(got: Sequence[Row], expected: Sequence[Row], *, in_order: bool) -> bool:
    """Return whether two results hold the same rows; a column of integers exactly, other numbers to nine digits."""
    if len({len(row) for row in (*got, *expected)}) > 1:
        return False
    exact = [
        all(value is None or isinstance(value, int) for value in column) for column in zip(*got, *expected, strict=True)
    ]
    ours, theirs = ([_comparable(row, exact) for row in rows] for rows in (got, expected))
    return ours == theirs if in_order else Counter(ours) == Counter(theirs)


def _comparable(row: Row, exact: Sequence[bool]) -> Row:
    return tuple(
        float(f"{value:.9g}") if isinstance(value, int | float) and not is_exact else value
        for value, is_exact in zip(row, exact, strict=True)
    )
