"""Model calls that a span carries in two dialects, as two instrumentors of one library leave them.

Invariant: each dialect is read by itself, and a field comes from one of them: from the one with ids of tool calls,
else from the one with tool calls and parts, else from the one with the longer text. Nothing is concatenated. Readings
whose content differs are a conflict, which the call is not trained on.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from spanloop.messages import MalformedMessagesError, Message, MessageLog, ToolCall, parse_json_or_none
from spanloop.messages.chat_forms import Fields
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .attributes import Attributes

Value = str | Sequence[Fields]
"""Messages as JSON, or decoded."""
Reading = Mapping[str, Value]
"""Field → its value, of one span."""
Reader = Callable[[pl.DataFrame], Mapping[int, Reading]]
"""Reads spans with the number of each, ``_row``, by the first dialect that knows it."""

CONTENT: Final = (("input_messages", "system_instructions"), ("output_messages",))
"""Fields that come from one reading: instructions stand beside the messages, or among them."""
_ATTRIBUTE_OF: Final = {"input_messages": names.GEN_AI_INPUT_MESSAGES, "output_messages": names.GEN_AI_OUTPUT_MESSAGES}
_SPACE: Final = re.compile(r"\s+")


class _Family(NamedTuple):
    """Attributes that carry a call in one dialect."""

    messages: re.Pattern[str]
    """Keys of its messages."""
    keys: re.Pattern[str]
    """All of its keys."""


_FAMILIES: Final = (
    _Family(re.compile(r"gen_ai\.(?:input|output)\.messages"), re.compile(r"gen_ai\.(?!prompt|completion)")),
    _Family(
        re.compile(r"(?:gen_ai\.(?:prompt|completion)|llm\.(?:prompts|completions))(?:\.\d+\.|$)"),
        re.compile(r"gen_ai\.(?!input\.|output\.|system_)|llm\.(?!input|output)|traceloop\."),
    ),
    _Family(
        re.compile(r"llm\.(?:input|output)_messages\."),
        re.compile(r"llm\.(?!request|prompts\.|completions\.)|openinference\.|(?:input|output)\.(?:value|mime_type)"),
    ),
    _Family(
        re.compile(r"ai\.(?:prompt\.messages|response\.(?:text|toolCalls))$"),
        re.compile(r"ai\.|operation\.name$|resource\.name$|gen_ai\.(?:system|request|response|usage)\b"),
    ),
)


class Merged(NamedTuple):
    """What two readings change of a span."""

    fields: dict[str, Value]
    """The fields that another reading than the first one gives."""
    conflict: str
    """An attribute, and what differs; empty where the readings agree."""


def merged_readings(
    spans: pl.DataFrame, attributes: Attributes, first: Callable[[int], Reading], read: Reader
) -> dict[int, Merged]:
    """Row → what its dialects give together, of the model calls that more than one dialect carries.

    Args:
        spans: The columns of ``frames.SPANS`` and ``_row``, the number of each row in ``attributes``.
        attributes: Of all rows.
        first: The fields of a row as the dialect reads them that the span has by precedence.
        read: Reads spans that carry one dialect.
    """
    carried = [np.array([family.messages.match(key) is not None for key in attributes.keys]) for family in _FAMILIES]
    counts = [np.bincount(attributes.rows[mask[attributes.codes]], minlength=attributes.height) > 0 for mask in carried]
    is_double = np.sum(counts, axis=0) > 1
    if not is_double.any():
        return {}
    numbers = set(np.flatnonzero(is_double).tolist())
    doubles = spans.filter(pl.col("_row").is_in(list(numbers)))
    readings: dict[int, list[Reading]] = {row: [] for row in doubles["_row"].to_list()}
    for family, has_messages in zip(_FAMILIES, counts, strict=True):
        rows = doubles.filter(pl.col("_row").is_in(np.flatnonzero(has_messages).tolist()))
        if rows.is_empty():
            continue
        for row, reading in read(_of_family(rows, family)).items():
            if reading.get("kind") == SpanKind.LLM.value:
                readings[row].append(reading)
    log = MessageLog()
    return {row: _merged(first(row), others, log) for row, others in readings.items() if len(others) > 1}


def _of_family(spans: pl.DataFrame, family: _Family) -> pl.DataFrame:
    items = [
        [item for item in row if item["key"] and family.keys.match(item["key"])]
        for row in spans["SpanAttributes"].to_list()
    ]
    return spans.with_columns(pl.Series("SpanAttributes", items, dtype=spans["SpanAttributes"].dtype))


def _merged(first: Reading, readings: Sequence[Reading], log: MessageLog) -> Merged:
    fields: dict[str, Value] = {}
    conflict = ""
    for group in CONTENT:
        name = group[0]
        candidates = [(reading, _messages(reading.get(name, ""), log)) for reading in (first, *readings)]
        source, best = max(candidates, key=lambda candidate: _rank(candidate[1]))
        if source is not first and _rank(best) > _rank(candidates[0][1]):
            fields |= {field: source.get(field, "") for field in group}
        contents = [messages for _, messages in candidates[1:] if messages]
        if not conflict and any(_differ(one, other) for one, other in _pairs(contents)):
            conflict = f"{_ATTRIBUTE_OF[name]}: two dialects of the span tell of different content"
    return Merged(fields, conflict)


def _messages(value: Value, log: MessageLog) -> tuple[Message, ...]:
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


def _pairs(items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return ((one, other) for place, one in enumerate(items) for other in items[place + 1 :])


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
