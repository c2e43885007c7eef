"""JSON of engines: decoded and encoded by orjson, and by the standard library where orjson refuses a value.

orjson refuses unpaired surrogates and NaN, and encodes no integer beyond 64 bits; engines and agents can send them.
"""

import json
from typing import Any, cast

import orjson


def decode_json(data: bytes) -> object:
    """Return the JSON value.

    Raises:
        ValueError: The bytes are not JSON.
        RecursionError: The value is nested too deep.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return json.loads(data)


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; empty for another value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON array; empty for another value."""
    if not isinstance(value, list):
        return []
    values: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return values


def encode_json(value: Any) -> bytes:
    """Return compact UTF-8 JSON, or ASCII where a text has an unpaired surrogate: the escape stays.

    Raises:
        TypeError: JSON has no form for the value.
        RecursionError: It is nested too deep.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
