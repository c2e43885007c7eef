"""OTLP attribute values as the strings that the OpenTelemetry ClickHouse exporter stores.

Scalars become their plain text, bytes base64, arrays and kvlists JSON. The exporter's JSON sorts keys and escapes
``<``, ``>`` and ``&``; ours keeps the sender's order and the characters, which is the same JSON value.
"""

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from .number_arrays import numbers_json


def attributes(pairs: Iterable[KeyValue]) -> dict[str, str]:
    """Return an attribute list as a map; the last value of a duplicate key counts."""
    # Most values are non-empty strings: checking for one first saves a sixth of a span's cost.
    return {pair.key: pair.value.string_value or text(pair.value) for pair in pairs}


def text(value: AnyValue) -> str:
    """Return one value as stored; an absent value is the empty string."""
    kind = value.WhichOneof("value")
    return "" if kind is None or kind not in _TEXTS else _TEXTS[kind](value)


def format_double(number: float) -> str:
    """Return the shortest digits of a double, as the exporter writes them (``1``, ``0.7``, ``1e+21``)."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    magnitude = abs(number)
    if magnitude == 0 or 1e-6 <= magnitude < 1e21:
        digits = format(Decimal(repr(number)), "f")
        return digits.removesuffix(".0")
    mantissa, _, exponent = repr(number).partition("e")
    sign = "-" if exponent.startswith("-") else "+"
    return f"{mantissa}e{sign}{exponent.lstrip('+-0')}"


def _plain(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    return None if kind is None or kind not in _PLAIN else _PLAIN[kind](value)


def _plain_double(value: AnyValue) -> float | str:
    # JSON has no NaN and no infinity; their text is stored.
    number = value.double_value
    return number if math.isfinite(number) else format_double(number)


def _json(value: AnyValue) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _base64(value: AnyValue) -> str:
    return base64.b64encode(value.bytes_value).decode()


_TEXTS: Final[Mapping[str, Callable[[AnyValue], str]]] = {
    "string_value": attrgetter("string_value"),
    "int_value": lambda value: str(value.int_value),
    "bool_value": lambda value: "true" if value.bool_value else "false",
    "double_value": lambda value: format_double(value.double_value),
    "bytes_value": _base64,
    "array_value": lambda value: numbers_json(value.array_value) or _json(value),
    "kvlist_value": _json,
}
_PLAIN: Final[Mapping[str, Callable[[AnyValue], object]]] = {
    "string_value": attrgetter("string_value"),
    "int_value": attrgetter("int_value"),
    "bool_value": attrgetter("bool_value"),
    "double_value": _plain_double,
    "bytes_value": _base64,
    "array_value": lambda value: [_plain(item) for item in value.array_value.values],
    "kvlist_value": lambda value: {pair.key: _plain(pair.value) for pair in value.kvlist_value.values},
}
