"""The reward of an attempt: whether its SQL returns the same rows as the right SQL."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from read_only_database import Row
from sql_templates import is_ordered

VALID_SQL: Final = 0.2
"""Reward of a query that runs and returns other rows."""
READ_SCHEMA: Final = 0.1
"""Reward of an attempt without such a query that has read the schema."""


def execution_reward(expected: Sequence[Row], rows: Sequence[Row] | None, sql: str, *, read_schema: bool) -> float:
    """Return 1 for the same rows, and less than one half for a part of the way.

    Args:
        expected: Rows of the right SQL.
        rows: Rows of the attempt's last query that ran; None without one.
        sql: The right SQL; the order of the rows counts when it has one.
        read_schema: The attempt has read the columns of a table.
    """
    if rows is None:
        return READ_SCHEMA if read_schema else 0.0
    return 1.0 if same_rows(expected, rows, in_order=is_ordered(sql)) else VALID_SQL


def same_rows(expected: Sequence[Row], rows: Sequence[Row], *, in_order: bool) -> bool:
    """Return whether two results have equal rows, each as often; numbers are equal to nine digits.

    Args:
        expected: One result.
        rows: The other one.
        in_order: The rows are also in the same order.
    """
    left, right = ([tuple(map(_comparable, row)) for row in result] for result in (expected, rows))
    return left == right if in_order else Counter(left) == Counter(right)


def _comparable(value: object) -> object:
    return float(f"{value:.9g}") if isinstance(value, (int, float)) else value
