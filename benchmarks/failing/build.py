"""Rows of spans and scores from a case, with the columns that the converters read."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .model import Call, Case, Fault, Tool, Turn

Row = dict[str, Any]
START_NS = 1_795_165_200 * 1_000_000_000
SECOND_NS = 1_000_000_000
TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (list, "array"),
    (dict, "object"),
)


def spans_of(case: Case) -> tuple[list[Row], list[Row]]:
    """The rows of ``otel_traces`` and ``scores`` that this case is: one trace, and its reward if it has one."""
    trace = _Trace(case)
    for turn in case.turns:
        trace.add(turn)
    scores = [] if case.reward is None else [_score(trace, case.reward)]
    return [trace.root(), *trace.rows], scores


@dataclass
class _Trace:
    """The spans so far, the messages so far, and the calls that no tool has answered yet."""

    case: Case
    rows: list[Row] = field(default_factory=list[Row])
    messages: list[Row] = field(default_factory=list[Row])
    waiting: list[tuple[str, Call]] = field(default_factory=list[tuple[str, Call]])
    seconds: int = 1
    calls: int = 0

    @property
    def id(self) -> str:
        return _hash(self.case.id, 32)

    def add(self, turn: Turn) -> None:
        if turn.by == "model":
            self._model(turn)
        elif turn.by == "tool":
            self._tool(turn)
        else:
            self.messages.append(_message(turn.by, [_text(turn.text)]))

    def root(self) -> Row:
        last = self.case.turns[-1]
        values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "assistant"}
        uncaught = None if last.stream else last.fault
        return self._span("invoke_agent assistant", values, self.case.crash or uncaught, root=True)

    def _model(self, turn: Turn) -> None:
        case = self.case
        self.calls += 1
        values: Row = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": case.provider,
            "gen_ai.request.model": case.model,
            "gen_ai.is_streaming": turn.stream,
            "gen_ai.input.messages": json.dumps(self.messages),
        }
        if definitions := _definitions(case):
            values["gen_ai.tool.definitions"] = json.dumps(definitions)
        asked = [(f"call_{_hash(f'{case.id}/{self.calls}/{at}', 12)}", call) for at, call in enumerate(turn.calls)]
        if turn.recorded:
            said = _message("assistant", [_text(turn.text)] if turn.text else [])
            said["parts"] += [
                {"type": "tool_call", "id": identity, "name": call.name, "arguments": call.arguments}
                for identity, call in asked
            ]
            reason = turn.finish or ("tool_call" if asked else "stop")
            values |= {
                "gen_ai.response.model": case.model,
                "gen_ai.response.id": f"chatcmpl-{_hash(f'{case.id}/{self.calls}', 16)}",
            }
            if reason == "none":
                values["gen_ai.output.messages"] = json.dumps([said])
            else:
                values["gen_ai.response.finish_reasons"] = [reason]
                values["gen_ai.output.messages"] = json.dumps([{**said, "finish_reason": reason}])
            self.messages = [*self.messages, said]
        self.waiting += asked
        self.rows.append(self._span(f"chat {case.model}", values, turn.fault))

    def _tool(self, turn: Turn) -> None:
        identity, call = self.waiting.pop(0)
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": identity,
            "gen_ai.tool.call.arguments": arguments,
        }
        if turn.fault is None:
            values["gen_ai.tool.call.result"] = turn.text
        self.rows.append(self._span(f"execute_tool {call.name}", values, turn.fault))
        if turn.handed_back:
            result = turn.fault.message if turn.fault else turn.text
            response = result if turn.seen is None else turn.seen
            part = {"type": "tool_call_response", "id": identity, "response": response}
            self.messages = [*self.messages, _message("tool", [part])]

    def _span(self, name: str, values: Mapping[str, Any], fault: Fault | None, *, root: bool = False) -> Row:
        begin = 0 if root else self.seconds
        length = self.seconds if root else 1
        if not root:
            self.seconds += 2
        if fault is not None:
            values = {**values, "error.type": fault.type}
        event = {"exception.type": fault.type, "exception.message": fault.message} if fault else {}
        return {
            "Timestamp": START_NS + begin * SECOND_NS,
            "TraceId": self.id,
            "SpanId": _hash(f"{self.case.id}/span/{0 if root else len(self.rows) + 1}", 16),
            "ParentSpanId": "" if root else _hash(f"{self.case.id}/span/0", 16),
            "SpanName": name,
            "ServiceName": "app",
            "ScopeName": "",
            "SpanAttributes": _items(values),
            "Duration": length * SECOND_NS,
            "StatusCode": "Error" if fault else "Unset",
            "StatusMessage": fault.message if fault else "",
            "Events.Name": ["exception"] if fault else [],
            "Events.Attributes": [_items(event)] if fault else [],
            "DroppedAttributesCount": 0,
            "IngestedAt": (START_NS + (begin + length + 1) * SECOND_NS) // 1_000,
        }


def _score(trace: _Trace, value: float) -> Row:
    at = START_NS + (trace.seconds + 1) * SECOND_NS
    return {
        "score_id": f"score-{_hash(trace.case.id, 16)}",
        "name": "reward",
        "value": value,
        "label": "",
        "trace_id": trace.id,
        "span_id": "",
        "response_id": "",
        "session_id": "",
        "episode_key": "",
        "scored_at": at,
        "ingested_at": (at + SECOND_NS) // 1_000,
        "is_deleted": 0,
    }


def _definitions(case: Case) -> list[Row]:
    tools = case.tools or _called(case.turns)
    return [
        {"type": "function", "name": each.name, "description": each.description, "parameters": each.parameters}
        for each in tools
    ]


def _called(turns: Sequence[Turn]) -> list[Tool]:
    """A definition for every tool that is called, which the arguments of its first call satisfy."""
    found: dict[str, Tool] = {}
    for call in (call for turn in turns for call in turn.calls):
        given: Mapping[str, Any] = {} if isinstance(call.arguments, str) else call.arguments
        properties = {key: {"type": _type(value)} for key, value in given.items()}
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        found.setdefault(call.name, Tool(call.name, call.name.replace("_", " ").capitalize() + ".", schema))
    return list(found.values())


def _type(value: Any) -> str:
    return next((name for type_, name in TYPES if isinstance(value, type_)), "string")


def _message(role: str, parts: list[Row]) -> Row:
    return {"role": "assistant" if role == "model" else role, "parts": parts}


def _text(content: str) -> Row:
    return {"type": "text", "content": content}


def _items(values: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"key": key, "value": value if isinstance(value, str) else json.dumps(value)} for key, value in values.items()
    ]


def _hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
