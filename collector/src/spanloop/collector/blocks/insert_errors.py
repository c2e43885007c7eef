"""Distinguish rows that ClickHouse refuses permanently from an outage, and remember them until their block is stored.

A block with such a row is halved until the row is alone. Invariant: a range of rows has its own deduplication token and
is inserted repeatedly until it is either stored or refused permanently; a refusal is durable before a half of the range
is inserted. So no row is ever inserted under two tokens that could both be stored, even across a crash.
"""

import os
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import StoreError
from spanloop.foundation.paths import disk_error, sync_directory

_DATA_CODES: Final = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        53,  # TYPE_MISMATCH
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        128,  # TOO_LARGE_ARRAY_SIZE
        131,  # TOO_LARGE_STRING_SIZE
        153,  # ILLEGAL_DIVISION
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        395,  # FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
        407,  # DECIMAL_OVERFLOW
        436,  # PROTOBUF_BAD_CAST
        469,  # VIOLATED_CONSTRAINT
        691,  # UNKNOWN_ELEMENT_OF_ENUM
    }
)
"""ClickHouse's error codes that depend on a row's content. Others are an outage, or for the operator to fix."""
_STATEMENT_CODES: Final = frozenset(
    {
        36,  # BAD_ARGUMENTS
        46,  # UNKNOWN_FUNCTION
        47,  # UNKNOWN_IDENTIFIER
        48,  # NOT_IMPLEMENTED
        62,  # SYNTAX_ERROR
        73,  # UNKNOWN_FORMAT
        115,  # UNKNOWN_SETTING
        434,  # PROTOBUF_FIELD_NOT_REPEATED
        444,  # UNKNOWN_PROTOBUF_FORMAT
    }
)
"""Codes of a server that cannot parse the protobuf insert, for example because of its version."""
_ACCESS_DENIED: Final = 497
_VIEW: Final = "while pushing to view"


def is_permanent(error: StoreError) -> bool:
    """Return whether the same rows are refused at every insert.

    A failing materialized view is not permanent: the table has the rows by then, so parts of the block under other
    tokens would duplicate them. The operator has to fix the view that `/healthz` names.
    """
    return _code(error) in _DATA_CODES and _VIEW not in error.what


def can_retry_as_rows(error: StoreError) -> bool:
    """Return whether ClickHouse cannot parse a protobuf block, or refuses rows of it: rows from Python may pass."""
    return is_permanent(error) or (_code(error) in _STATEMENT_CODES and _VIEW not in error.what)


def is_forbidden(error: StoreError) -> bool:
    """Return whether the user lacks a right for the statement."""
    return _code(error) == _ACCESS_DENIED


def _code(error: StoreError) -> object:
    return getattr(error.__cause__, "code", None)  # the driver's error, whose type the store hides


class RefusedRanges:
    """Deduplication tokens of the current block's ranges that were refused permanently.

    Args:
        path: A file that keeps them across restarts; None keeps them in memory, for tests.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        lines = path.read_text().split("\n")[:-1] if path is not None and path.exists() else []
        self._tokens = dict.fromkeys(lines)  # a last line without its end was cut off by a crash and is ignored

    def __contains__(self, token: str) -> bool:
        return token in self._tokens

    def add(self, block_id: str, token: str) -> None:
        """Add a range durably, and drop the ranges of other blocks, which are stored by now.

        Raises:
            DataDirectoryError: The disk failed; the range counts as not refused.
        """
        retained = [known for known in self._tokens if known.startswith(block_id)]
        if self._path is not None:
            try:
                is_new = not self._path.exists()
                with self._path.open("a" if retained else "w") as file:
                    file.write(f"{token}\n")
                    file.flush()
                    os.fsync(file.fileno())
                if is_new:
                    sync_directory(self._path.parent)
            except OSError as error:
                raise disk_error(self._path, error) from error
        self._tokens = dict.fromkeys([*retained, token])
