"""A task: an id, the fields of its record, and a digest of the fields.

Invariant: two tasks with equal fields have equal digests, whatever their ids and the order of their fields. So a task
is recognised in another file, under another id and in another format.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Final, cast

from pydantic import JsonValue

Fields = Mapping[str, JsonValue]

_ID_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Task:
    """One task."""

    id: str
    fields: Fields
    """The record without its id: question, answer, …"""
    digest: str
    """SHA-256 of the canonical JSON of ``fields``, in hex."""


def content_digest(fields: Fields) -> str:
    """Return the SHA-256 of the canonical JSON of ``fields``: sorted keys, no white space, UTF-8."""
    text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def id_of_content(digest: str) -> str:
    """Return the id of a task that has none of its own."""
    return f"task-{digest[:_ID_DIGITS]}"


def json_value(value: object) -> JsonValue:
    """Convert a value of a file format or of a dataset to JSON.

    Raises:
        ValueError: It has no JSON form, as a number that is not finite.
    """
    result: JsonValue
    match value:
        case None | bool() | int():
            result = value
        case str():
            value.encode()  # a lone surrogate is a ValueError: no database and no process takes it
            result = value
        case float() if math.isfinite(value):
            result = value
        case Decimal() if value.is_finite():
            result = int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            result = value.isoformat()
        case timedelta():
            result = value.total_seconds()
        case bytes():
            result = base64.b64encode(value).decode()
        case Mapping():
            items = cast("Mapping[object, object]", value)
            result = {str(name): json_value(item) for name, item in items.items()}
        case Sequence():
            result = [json_value(item) for item in cast("Sequence[object]", value)]
        case _:
            result = json_value(_of_array(value))
    return result


def _of_array(value: object) -> object:
    """The Python value of a NumPy scalar or array, or of another type that offers ``tolist``."""
    to_list = getattr(value, "tolist", None)
    if to_list is None:
        raise ValueError(f"{type(value).__name__} {value!r:.60} has no JSON form")
    return to_list()
