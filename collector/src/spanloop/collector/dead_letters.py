"""Dead letters: items and bodies that could not be accepted, stored for inspection and replay.

Invariant: an item or a body that is rejected for its content is in the spool before the client gets its response, and
from there it goes to the table ``dead_letters``. Its ``raw`` bytes are a whole request body in ``content_type``: each
item keeps its envelope, so a replay sends them unchanged. The same bytes rejected for the same reason are one row.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, cast

import polars as pl

from spanloop.foundation.tables.arrivals import DEAD_LETTERS

from .otlp.wire import MalformedError

KIND: Final = "dead_letters"
"""The ``kind`` of dead letters' records in the spool."""
TABLE: Final = DEAD_LETTERS.name
_MAX_IDS: Final = 100
_MAX_DETAIL: Final = 2000


class Signal(StrEnum):
    """The signal of a request; also the ``kind`` of its record in the spool."""

    TRACES = "traces"
    LOGS = "logs"


class RejectReason(StrEnum):
    """Why an item or a body was not accepted."""

    BAD_TRACE_ID = "bad_trace_id"
    BAD_SPAN_ID = "bad_span_id"
    BAD_PARENT_SPAN_ID = "bad_parent_span_id"
    TIMESTAMP_OUT_OF_RANGE = "timestamp_out_of_range"
    UNDECODABLE = "undecodable"
    MALFORMED_BODY = "malformed_body"
    """The body is no request."""
    REFUSED_BY_CLICKHOUSE = "refused_by_clickhouse"
    """ClickHouse refuses the row at every insert, and accepts the rows beside it."""
    UNREADABLE_RECORD = "unreadable_record"
    """A spool record that the writer cannot parse: from another spanloop version, or a bug."""


@dataclass(frozen=True)
class DeadLetter:
    """The items of one request that were rejected for one reason, or a whole body."""

    signal: str
    reason: RejectReason
    detail: str
    """Text for the user: got and expected, of the first item."""
    content_type: str
    raw: bytes
    """A request body with exactly these items."""
    item_count: int = 1
    trace_ids: tuple[str, ...] = ()
    """Lower-case hex, of the first 100 items, without repetition; empty when the body could not be parsed."""
    span_ids: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """32 hex digits that depend only on the content."""
        head = f"{self.signal} {self.reason} {self.content_type}\n".encode()
        return hashlib.sha256(head + self.raw).hexdigest()[:32]


def hex_ids(ids: Sequence[bytes]) -> tuple[str, ...]:
    """Return the ids as a dead letter stores them."""
    return tuple(dict.fromkeys(id_bytes.hex() for id_bytes in ids[:_MAX_IDS]))


def encode(letters: Sequence[DeadLetter]) -> bytes:
    """Encode dead letters as one record of the spool: a line of JSON, then the raw bytes."""
    heads = [
        {
            "signal": letter.signal,
            "reason": letter.reason,
            "detail": letter.detail[:_MAX_DETAIL],
            "content_type": letter.content_type,
            "item_count": letter.item_count,
            "trace_ids": letter.trace_ids,
            "span_ids": letter.span_ids,
            "raw_bytes": len(letter.raw),
        }
        for letter in letters
    ]
    return json.dumps(heads).encode() + b"\n" + b"".join(letter.raw for letter in letters)


def decode(record: bytes) -> list[DeadLetter]:
    """Decode a record that `encode` wrote.

    Raises:
        MalformedError: The record is not in this format.
    """
    line, _, raw = record.partition(b"\n")
    letters: list[DeadLetter] = []
    try:
        for head in _heads(line):
            size_bytes = int(head["raw_bytes"])
            if len(raw) < size_bytes:
                raise MalformedError(f"dead letter of {size_bytes} bytes in a record that has {len(raw)} left")
            letters.append(
                DeadLetter(
                    signal=str(head["signal"]),
                    reason=RejectReason(head["reason"]),
                    detail=str(head["detail"]),
                    content_type=str(head["content_type"]),
                    raw=raw[:size_bytes],
                    item_count=int(head["item_count"]),
                    trace_ids=tuple(map(str, head["trace_ids"])),
                    span_ids=tuple(map(str, head["span_ids"])),
                )
            )
            raw = raw[size_bytes:]
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedError(f"no dead letters in {len(record)} bytes: {error}") from error
    return letters


def _heads(line: bytes) -> list[dict[str, Any]]:
    heads: object = json.loads(line)
    if not isinstance(heads, list):
        raise TypeError(f"got {line[:40]!r}, expected a list")
    return cast("list[dict[str, Any]]", heads)


class DeadLetterRows:
    """Collects dead letters as rows of ``dead_letters``."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []

    def add(self, letter: DeadLetter, received_ns: int) -> None:
        """Append a dead letter that was received at this time."""
        self._rows.append(
            {
                "dead_letter_id": letter.id,
                "received_at": received_ns,
                "signal": letter.signal,
                "reason": str(letter.reason),
                "detail": letter.detail,
                "content_type": letter.content_type,
                "raw_base64": base64.b64encode(letter.raw).decode(),
                "item_count": letter.item_count,
                "trace_ids": list(letter.trace_ids),
                "span_ids": list(letter.span_ids),
            }
        )

    def to_frame(self) -> pl.DataFrame:
        """Return all rows so far, with the columns of ``dead_letters`` that have no default."""
        return DEAD_LETTERS.from_dicts(self._rows)
