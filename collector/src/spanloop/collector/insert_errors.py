"""Rows that ClickHouse refuses for good: telling them from an outage, and remembering them until their block is done.

A block that holds such a row is halved until the row is alone. Invariant: a range of rows is sent under a token of its
own, again and again, until it is either stored or refused for good; a refusal is durable before a half of the range is
sent. So no row is ever sent under two tokens of which both could be stored, whatever crashes in between.
"""

import os
from pathlib import Path
from typing import Final

from spanloop.datadir import disk_error, sync_directory
from spanloop.semconv.errors import StoreError

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
"""ClickHouse's error codes that depend on a row's content. Every other one may pass by itself, or by a person."""
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
"""Codes of a server that cannot read raw protobuf the way that we ask it to: of another version, perhaps."""
_VIEW: Final = "while pushing to view"


def is_for_good(error: StoreError) -> bool:
    """Whether the same rows would be refused however often they are sent.

    Not when a materialized view fails: the table has the rows by then, so parts of the block under other tokens would
    double them. Somebody has to mend the view, and `/healthz` says which.
    """
    return _code(error) in _DATA_CODES and _VIEW not in error.what


def is_unreadable(error: StoreError) -> bool:
    """Whether ClickHouse cannot read a raw block, or refuses rows of it: rows that Python makes are another try."""
    return is_for_good(error) or (_code(error) in _STATEMENT_CODES and _VIEW not in error.what)


def _code(error: StoreError) -> object:
    return getattr(error.__cause__, "code", None)  # the driver's; the store hides its type


class RefusedRanges:
    """Names of the ranges of the block under way that were refused for good.

    Args:
        path: A file that holds them over a restart; None keeps them in memory, for tests.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        lines = path.read_text().split("\n")[:-1] if path is not None and path.exists() else []
        self._names = dict.fromkeys(lines)  # a last line without its end was being written: it does not count

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, block_id: str, name: str) -> None:
        """Remember a range durably; what is known of other blocks is forgotten, because theirs is done.

        Raises:
            DataDirectoryError: The disk refused; the range counts as not refused.
        """
        kept = [each for each in self._names if each.startswith(block_id)]
        if self._path is not None:
            try:
                is_new = not self._path.exists()
                with self._path.open("a" if kept else "w") as file:
                    file.write(f"{name}\n")
                    file.flush()
                    os.fsync(file.fileno())
                if is_new:
                    sync_directory(self._path.parent)
            except OSError as error:
                raise disk_error(self._path, error) from error
        self._names = dict.fromkeys([*kept, name])
