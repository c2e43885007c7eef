"""Scripts as rows of ``otel_traces``."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from .script import Message, Raised, Turn

START_NS: Final = 1_795_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000
_WHERE: Final = {"beside": "b", "inner agent": "c", "inner call": "d", "inner tool": "e"}


class Place(NamedTuple):
    """Where a span stands."""

    trace: str
    own: str
    parent: str
    start_ns: int
    duration_ns: int = SECOND_NS // 2


def call_span(place: Place, seen: Sequence[Message], turn: Turn, tools: Sequence[Message]) -> Message:
    """The model call of a turn; its place's own id is the response's too."""
    values: Message = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "airline",
        "gen_ai.is_streaming": turn.is_streaming,
        "gen_ai.input.messages": list(seen),
        "gen_ai.tool.definitions": list(tools),
    }
    if turn.said is not None:
        finish = turn.finish
        said = {**turn.said, "parts": [*turn.said["parts"], *(each.call for each in turn.beside)]}
        values |= {
            "gen_ai.response.id": f"{place.trace}-{place.own}",
            "gen_ai.response.finish_reasons": [finish],
            "gen_ai.output.messages": [{**said, "finish_reason": finish}],
        }
    if turn.raised:
        values["error.type"] = turn.raised[0]
    return span(place, "chat", values, turn.raised)


def tool_span(place: Place, turn: Turn) -> Message:
    """The tool call of a turn."""
    return one_tool_span(place, turn.call or {}, turn.answer, turn.tool_raised)


def one_tool_span(place: Place, call: Message, answer: str | None, raised: Raised | None) -> Message:
    """A tool call; the answer is the tool's own where it did not raise."""
    values: Message = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call["id"],
    }
    if answer is not None and raised is None:
        values["gen_ai.tool.call.result"] = answer
    return span(place, "execute_tool", values, raised)


def span(place: Place, name: str, values: Message, raised: Raised | None = None) -> Message:
    """One row."""
    event = {"exception.type": raised[0], "exception.message": raised[1]} if raised else {}
    return {
        "Timestamp": place.start_ns,
        "TraceId": place.trace,
        "SpanId": place.own,
        "ParentSpanId": place.parent,
        "SpanName": name,
        "ServiceName": "airline",
        "ScopeName": "",
        "SpanAttributes": _items(values),
        "Duration": place.duration_ns,
        "StatusCode": "Error" if raised else "Unset",
        "StatusMessage": raised[1] if raised else "",
        "Events.Name": ["exception"] if raised else [],
        "Events.Attributes": [_items(event)] if raised else [],
        "DroppedAttributesCount": 0,
        "IngestedAt": place.start_ns // 1_000,
    }


def _items(values: Message) -> list[Message]:
    return [{"key": key, "value": v if isinstance(v, str) else json.dumps(v)} for key, v in values.items()]


def identity(trace: str, number: int, *, is_tool: bool = False) -> str:
    """The span id of turn ``number``."""
    return f"{trace[-8:]}{number * 2 + is_tool + 1:08x}"


def identity_at(trace: str, number: int, where: str, of: int = 0) -> str:
    """The span id of what stands beside or within the tool call of turn ``number``: the ``of``-th of its sort."""
    return f"{trace[-8:]}{_WHERE[where]}{of:02x}{number:05x}"


def score(trace: str, value: float) -> Message:
    """A row of ``scores``: the reward of a trace."""
    return {"score_id": trace, "name": "reward", "value": value, "trace_id": trace, "scored_at": START_NS}
