"""OTLP requests made from imported data, and the conversion of Python values to OTLP."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from spanloop.collector.validation import Signal
from spanloop.foundation.surrogates import replace_surrogates

from .report import BadItemError, Place

_INT64: Final = range(-(2**63), 2**63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Score(NamedTuple):
    """A row of ``scores`` for a whole conversation."""

    score_id: str
    value: float
    trace_id: str
    episode_key: str
    task_id: str
    scored_ns: int


class ImportRequest(NamedTuple):
    """An OTLP request and its place in the input."""

    place: Place
    signal: Signal
    body: bytes
    is_conversation: bool = False
    """Whether its spans are one item: all of them are accepted, or none."""
    score: Score | None = None


def key_values(attributes: Mapping[str, object]) -> list[KeyValue]:
    """Convert Python values to OTLP attributes."""
    return [KeyValue(key=replace_surrogates(key), value=any_value(value)) for key, value in attributes.items()]


def any_value(value: object) -> AnyValue:  # noqa: PLR0911 - one return a type
    """Convert a Python value; types that OTLP lacks become text.

    Raises:
        RecursionError: The value is nested deeper than Python's stack allows.
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
    return AnyValue(string_value=replace_surrogates(str(value)))


def iso_nanoseconds(value: object, where: str) -> int:
    """Convert an ISO 8601 time to nanoseconds since the epoch; a time without a zone is UTC.

    Raises:
        BadItemError: The value is not a time, or before 1970.
    """
    expected = "an ISO 8601 time since 1970, such as 2026-01-02T03:04:05.678901Z"
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        time = None
    if time is None:
        raise BadItemError("bad_time", where, value, expected)
    aware = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    if aware < _EPOCH:
        raise BadItemError("bad_time", where, value, expected)
    return (aware - _EPOCH) // timedelta(microseconds=1) * 1_000
