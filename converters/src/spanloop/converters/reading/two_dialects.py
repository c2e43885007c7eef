"""Model calls that a span carries in two dialects, as two instrumentors of one library leave them.

Invariant: each dialect is read by itself, and a field comes from one of them: from the one with ids of tool calls,
else from the one with tool calls and parts, else from the one with the longer text. Nothing is concatenated. Readings
whose content differs are a conflict, which the call is not trained on.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from spanloop.messages import MalformedMessagesError, Message, MessageLog, ToolCall, parse_json_or_none
from spanloop.semconv import attributes as names

from ..dialects import CONVENTIONS, ColumnValue
from ..spans import SpanKind
from .attributes import Attributes

Columns = Mapping[str, list[Any]]
"""The values of each field, by row."""
Reading = Mapping[str, ColumnValue]
"""Field → its value, of one span."""

CONFLICT: Final = "conflict"
"""The column with an attribute, and what differs in it between the dialects of a span; empty where they agree."""
_CONTENT: Final = (("input_messages", "system_instructions"), ("output_messages",))
"""Fields that come from one reading: instructions stand beside the messages, or among them."""
_ATTRIBUTE_OF: Final = {"input_messages": names.GEN_AI_INPUT_MESSAGES, "output_messages": names.GEN_AI_OUTPUT_MESSAGES}
_SPACE: Final = re.compile(r"\s+")


def with_second_dialect(
    columns: Columns,
    frame: pl.DataFrame,
    attributes: Attributes,
    read: Callable[[pl.DataFrame, Attributes], Columns],
) -> dict[str, list[Any]]:
    """Return ``columns`` with the better content of model calls that several dialects carry, and ``CONFLICT``.

    Args:
        columns: What ``read`` gives of ``frame``: each row by the dialect that it has by precedence.
        frame: The columns of ``frames.SPANS``, and ``_row``, the number of each row in ``attributes``.
        attributes: Of all rows.
        read: Reads rows by the first dialect that matches.
    """
    merged = {name: values.copy() for name, values in columns.items() if name in _CONTENT_FIELDS}
    conflicts = [""] * frame.height
    log = MessageLog()
    for place, readings in _readings(frame, attributes, read).items():
        if len(readings) > 1:
            first = {name: values[place] for name, values in columns.items()}
            fields, conflicts[place] = _merged(first, readings, log)
            for name, value in fields.items():
                merged[name][place] = value
    return {**columns, **merged, CONFLICT: conflicts}


_CONTENT_FIELDS: Final = frozenset(name for group in _CONTENT for name in group)


def _readings(
    frame: pl.DataFrame, attributes: Attributes, read: Callable[[pl.DataFrame, Attributes], Columns]
) -> dict[int, list[Reading]]:
    """Place → what each dialect gives, of the model calls that more than one dialect carries."""
    rows = frame["_row"].to_numpy()
    carried = [
        (convention, attributes.rows_with(attributes.matching(convention.is_message))[rows])
        for convention in CONVENTIONS
        if any(map(convention.is_message, attributes.keys))
    ]
    if len(carried) < _LEAST_DIALECTS:
        return {}
    is_double = np.sum([mask for _, mask in carried], axis=0) >= _LEAST_DIALECTS
    readings: dict[int, list[Reading]] = {}
    for convention, mask in carried:
        places: list[int] = np.flatnonzero(is_double & mask).tolist()
        if not places:
            continue
        columns = read(frame[places], attributes.only(convention.is_key))
        for number, place in enumerate(places):
            if columns["kind"][number] == SpanKind.LLM.value:
                reading = {name: columns[name][number] for name in _CONTENT_FIELDS}
                readings.setdefault(place, []).append(reading)
    return readings


_LEAST_DIALECTS: Final = 2


class _Merged(NamedTuple):
    """The best fields of several readings."""

    fields: dict[str, ColumnValue]
    """The fields that another reading than the first one gives."""
    conflict: str
    """See ``CONFLICT``."""


def _merged(first: Reading, readings: Sequence[Reading], log: MessageLog) -> _Merged:
    fields: dict[str, ColumnValue] = {}
    conflict = ""
    for group in _CONTENT:
        name = group[0]
        candidates = [(reading, _messages(reading.get(name, ""), log)) for reading in (first, *readings)]
        source, best = max(candidates, key=lambda candidate: _rank(candidate[1]))
        if _rank(best) > _rank(candidates[0][1]):
            fields |= {field: source.get(field, "") for field in group}
        contents = [messages for _, messages in candidates[1:] if messages]
        if not conflict and any(_differ(one, other) for one, other in combinations(contents, 2)):
            conflict = f"{_ATTRIBUTE_OF[name]}: two dialects of the span tell of different content"
    return _Merged(fields, conflict)


def _messages(value: ColumnValue, log: MessageLog) -> tuple[Message, ...]:
    """The messages of a value; none where it cannot be read."""
    try:
        return (log.read(value) if value else ()) if isinstance(value, str) else log.of_objects(value)
    except (MalformedMessagesError, RecursionError):
        return ()


def _rank(messages: Sequence[Message]) -> tuple[bool, int, int]:
    """Whether all tool calls and answers have ids, their count (of calls: those that can be read), and text length."""
    calls = [call for message in messages for call in message.tool_calls]
    responses = [response for message in messages for response in message.tool_responses]
    ids = [*(call.id for call in calls), *(response.id for response in responses)]
    count = sum(call.is_valid and bool(call.name) for call in calls) + len(responses)
    return bool(ids) and all(ids), count, sum(len(message.text) for message in messages)


def _differ(one: Sequence[Message], other: Sequence[Message]) -> bool:
    """Whether two readings say different things: neither has all that the other says."""
    words = [_SPACE.sub("", "".join(m.text for m in messages if m.role != "system")) for messages in (one, other)]
    calls = [{_spelled(call) for m in messages for call in m.tool_calls} for messages in (one, other)]
    has_other_words = all(words) and words[0] not in words[1] and words[1] not in words[0]
    return has_other_words or not (calls[0] <= calls[1] or calls[1] <= calls[0])


def _spelled(call: ToolCall) -> tuple[str, str]:
    """Name and arguments in one spelling; some instrumentors encode arguments twice."""
    arguments: object = call.arguments
    while isinstance(arguments, str) and (decoded := parse_json_or_none(arguments)) is not None:
        arguments = decoded
    return call.name, arguments if isinstance(arguments, str) else json.dumps(arguments, sort_keys=True)
