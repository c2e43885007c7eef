"""Find the attribute values that ClickHouse's statement for spans cannot read, without checking every value.

Invariant: every such value of a request is returned. In the bytes that the protobuf runtime writes, each follows
certain bytes. Ids and texts may contain these bytes by chance, so each match is verified.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .envelope import SPAN, AttributeList, MessageRange, attribute_lists, message_ranges, span_lists
from .schema import array_bytes
from .wire import MalformedError, Path

LocatedValue: TypeAlias = tuple[AnyValue, Path]
"""A value of a shallow request, and its path."""

_PLAIN_DOUBLES: Final = (1e-5, 1e15)
"""Between these magnitudes ClickHouse and the exporter format a double alike."""
_LONGEST_PLAIN: Final = 64


def _literal(*numbers: int) -> bytes:
    return re.escape(bytes(numbers))


_PLAIN_CHARACTER: Final = b"[A-Za-z0-9_./:-]"
_PLAIN_STRING: Final = re.compile(_PLAIN_CHARACTER + b"{1,%d}" % _LONGEST_PLAIN)
_ONE_PLAIN_STRING: Final = b"|".join(
    _literal(length + 4, 0x0A, length + 2, 0x0A, length) + _PLAIN_CHARACTER + b"{%d}" % length
    for length in range(1, _LONGEST_PLAIN + 1)
)
"""An ArrayValue of one string that JSON does not escape, such as ``finish_reasons``: the statement that inserts spans
formats it."""
_CANDIDATE: Final = re.compile(
    # The tag of a KeyValue's value, its length, and the tag within: an array, a kvlist, or a double …
    rb"\x12(?=([\x80-\xff]{0,4}[\x00-\x7f])(?:\x2a(?!\x00|" + _ONE_PLAIN_STRING + rb")|\x32|"
    # … that is neither 0 nor between 2^-15 and 2^49 in magnitude, as its last byte says.
    rb"(?<=\x12\x09)\x21(?!\x00{8}|.{7}[\x3f-\x42\xbf-\xc2])))",
    re.DOTALL,
)


def unsupported_values(request: ExportTraceServiceRequest, body: bytes) -> Sequence[LocatedValue]:
    """Return the values that must become text.

    Args:
        request: A `SHALLOW_REQUEST`.
        body: The bytes that the runtime wrote.
    """
    candidates = [match.start() for match in _CANDIDATE.finditer(body)]
    if not candidates:
        return ()
    try:
        ranges = _ranges_with_candidates(candidates, message_ranges(request, body))
    except MalformedError:
        return list(_select(attribute_lists(request), _is_unsupported))
    values: list[LocatedValue] = []
    previous_indexes: Sequence[int] = ()
    for message, count in ranges:
        if message.span is None:
            values += _select(message.lists, _is_unsupported)
            continue
        # Most spans of a sender have them at the same index: checking all attributes takes 9 µs.
        expected = _unsupported_at(previous_indexes, message.span)
        if len(expected) < count:
            expected = list(_select(span_lists(message.span), _is_unsupported))
            previous_indexes = _indexes(message.span)
        values += expected
    return values


def compound_values(request: ExportTraceServiceRequest) -> Sequence[LocatedValue]:
    """Return the unsupported values, and the arrays that ClickHouse can read."""
    return list(
        _select(
            attribute_lists(request), lambda value: value.WhichOneof("value") == "array_value" or _is_unsupported(value)
        )
    )


def _ranges_with_candidates(
    candidates: Iterable[int], messages: Iterable[MessageRange]
) -> Sequence[tuple[MessageRange, int]]:
    """Return the messages that contain candidates, and the number of candidates in each."""
    remaining = deque(candidates)
    ranges: list[tuple[MessageRange, int]] = []
    for message in messages:
        count = 0
        while remaining and remaining[0] < message.end:
            remaining.popleft()
            count += 1
        if count:
            ranges.append((message, count))
        if not remaining:
            break
    return ranges


def _select(lists: Iterable[AttributeList], is_selected: Callable[[AnyValue], bool]) -> Iterator[LocatedValue]:
    for path, pairs in lists:
        for pair in pairs:
            # Most values are non-empty strings: checking for one first saves a third of the cost.
            if not (value := pair.value).string_value and is_selected(value):
                yield value, path


def _unsupported_at(indexes: Sequence[int], span: Span) -> Sequence[LocatedValue]:
    pairs: Sequence[KeyValue] = span.attributes
    return [(value, SPAN) for at in indexes if at < len(pairs) and _is_unsupported(value := pairs[at].value)]


def _indexes(span: Span) -> Sequence[int]:
    return [at for at, pair in enumerate(span.attributes) if _is_unsupported(pair.value)]


def _is_unsupported(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return not _is_readable(array_bytes(value))
    if kind == "double_value":
        number = value.double_value
        return number != 0 and not _PLAIN_DOUBLES[0] <= abs(number) < _PLAIN_DOUBLES[1]
    return kind == "kvlist_value"


def _is_readable(array: bytes) -> bool:
    """Whether an array is empty, or one plain string."""
    size = len(array)
    if not 4 < size <= _LONGEST_PLAIN + 4:
        return not size
    return array[:4] == bytes((0x0A, size - 2, 0x0A, size - 4)) and _PLAIN_STRING.fullmatch(array, 4) is not None
