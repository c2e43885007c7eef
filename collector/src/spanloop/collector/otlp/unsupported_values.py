"""Finds the attribute values that ClickHouse's statement for spans cannot read, mostly without a look at the others.

Invariant: every such value of a request is found. In the bytes that the protobuf runtime writes each of them follows
certain bytes; ids and texts may hold those too, so whatever follows them is looked at as what it is.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .envelope import SPAN, AttributeList, Part, attribute_lists, parts, span_lists
from .schema import array_bytes
from .wire import MalformedError, Path

Found: TypeAlias = tuple[AnyValue, Path]
"""A value of a shallow request, and where it is."""

_PLAIN_DOUBLES: Final = (1e-5, 1e15)
"""Between these magnitudes ClickHouse and the exporter write the same digits."""
_LONGEST_PLAIN: Final = 64


def _literal(*numbers: int) -> bytes:
    return re.escape(bytes(numbers))


_PLAIN_CHARACTER: Final = b"[A-Za-z0-9_./:-]"
_PLAIN_STRING: Final = re.compile(_PLAIN_CHARACTER + b"{1,%d}" % _LONGEST_PLAIN)
_ONE_PLAIN_STRING: Final = b"|".join(
    _literal(length + 4, 0x0A, length + 2, 0x0A, length) + _PLAIN_CHARACTER + b"{%d}" % length
    for length in range(1, _LONGEST_PLAIN + 1)
)
"""The content of an ArrayValue of one string that JSON does not escape, such as every ``finish_reasons``: the statement
that inserts spans makes its text itself."""
_CANDIDATE: Final = re.compile(
    # The tag of a KeyValue's value, its length, and the tag within: an array, a kvlist, or a double …
    rb"\x12(?=([\x80-\xff]{0,4}[\x00-\x7f])(?:\x2a(?!\x00|" + _ONE_PLAIN_STRING + rb")|\x32|"
    # … that is neither 0 nor between 2^-15 and 2^49 in magnitude, as its last byte says.
    rb"(?<=\x12\x09)\x21(?!\x00{8}|.{7}[\x3f-\x42\xbf-\xc2])))",
    re.DOTALL,
)


def odd_values(request: ExportTraceServiceRequest, body: bytes) -> Sequence[Found]:
    """The values that must become texts.

    Args:
        request: A `SHALLOW_REQUEST`.
        body: What the runtime wrote of it.
    """
    candidates = [found.start() for found in _CANDIDATE.finditer(body)]
    if not candidates:
        return ()
    try:
        near = _parts_near(candidates, parts(request, body))
    except MalformedError:
        return list(_odd(attribute_lists(request), _is_odd))
    found: list[Found] = []
    at_before: Sequence[int] = ()
    for part, count in near:
        if part.span is None:
            found += _odd(part.others, _is_odd)
            continue
        # Most spans of a sender have them at the same place: looking at all their attributes takes 9 µs.
        guessed = _odd_at(at_before, part.span)
        if len(guessed) < count:
            guessed = list(_odd(span_lists(part.span), _is_odd))
            at_before = _places(part.span)
        found += guessed
    return found


def compound_values(request: ExportTraceServiceRequest) -> Sequence[Found]:
    """The same, and the arrays that ClickHouse can read."""
    return list(
        _odd(attribute_lists(request), lambda value: value.WhichOneof("value") == "array_value" or _is_odd(value))
    )


def _parts_near(candidates: Iterable[int], found: Iterable[Part]) -> Sequence[tuple[Part, int]]:
    """The parts that hold candidates, and how many."""
    waiting = deque(candidates)
    near: list[tuple[Part, int]] = []
    for part in found:
        count = 0
        while waiting and waiting[0] < part.end:
            waiting.popleft()
            count += 1
        if count:
            near.append((part, count))
        if not waiting:
            break
    return near


def _odd(lists: Iterable[AttributeList], is_odd: Callable[[AnyValue], bool]) -> Iterator[Found]:
    for path, pairs in lists:
        for pair in pairs:
            # Most values are strings that are not empty: asking for one first saves a third of the whole cost.
            if not (value := pair.value).string_value and is_odd(value):
                yield value, path


def _odd_at(places: Sequence[int], span: Span) -> Sequence[Found]:
    pairs: Sequence[KeyValue] = span.attributes
    return [(value, SPAN) for at in places if at < len(pairs) and _is_odd(value := pairs[at].value)]


def _places(span: Span) -> Sequence[int]:
    return [at for at, pair in enumerate(span.attributes) if _is_odd(pair.value)]


def _is_odd(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return not _is_readable(array_bytes(value))
    if kind == "double_value":
        number = value.double_value
        return number != 0 and not _PLAIN_DOUBLES[0] <= abs(number) < _PLAIN_DOUBLES[1]
    return kind == "kvlist_value"


def _is_readable(array: bytes) -> bool:
    """Whether it is empty, or one plain string."""
    size = len(array)
    if not 4 < size <= _LONGEST_PLAIN + 4:
        return not size
    return array[:4] == bytes((0x0A, size - 2, 0x0A, size - 4)) and _PLAIN_STRING.fullmatch(array, 4) is not None
