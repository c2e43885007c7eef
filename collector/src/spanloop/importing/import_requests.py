"""What every format is brought to: OTLP requests with their places, and how Python values become OTLP."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from spanloop.collector.validation import Signal

from .report import BadItemError, Place

_INT64: Final = range(-(2**63), 2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Score(NamedTuple):
    """A row of ``scores`` to be, for a whole conversation."""

    score_id: str
    value: float
    trace_id: str
    episode_key: str
    task_id: str
    scored_ns: int


class ImportRequest(NamedTuple):
    """One request."""

    place: Place
    signal: Signal
    body: bytes
    is_conversation: bool = False
    """Its spans are one item: all of them are accepted, or none."""
    score: Score | None = None


def key_values(attributes: Mapping[str, object]) -> list[KeyValue]:
    """Plain Python values as OTLP attributes."""
    return [KeyValue(key=utf8(key), value=any_value(value)) for key, value in attributes.items()]


def any_value(value: object) -> AnyValue:  # noqa: PLR0911 - one return a type
    """One plain Python value; what OTLP has no type for becomes text.

    Raises:
        RecursionError: It is nested deeper than Python's stack goes.
    """
    if value is None:
        return AnyValue()
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int) and value in _INT64:
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in items]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(cast("dict[str, object]", value))))
    return AnyValue(string_value=utf8(str(value)))


def utf8(text: str) -> str:
    """The text with U+FFFD for what UTF-8 cannot carry: JSON can hold half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text


def iso_nanoseconds(value: object, where: str) -> int:
    """Nanoseconds since the epoch of an ISO 8601 time; one without a zone is UTC.

    Raises:
        BadItemError: It is none, or before 1970.
    """
    expected = "an ISO 8601 time since 1970, such as 2026-01-02T03:04:05.678901Z"
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        raise BadItemError("bad_time", where, value, expected)
    aware = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    if aware < _EPOCH:
        raise BadItemError("bad_time", where, value, expected)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1_000
