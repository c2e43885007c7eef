"""One model call in the attributes of several instrumentors."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .converters_world import Message, World

Attributes = dict[str, Any]


def call_in(
    world: World,
    dialect: str,
    seen: Sequence[Message],
    said: Message | None,
    *,
    attributes: Mapping[str, Any] | None = None,
    **where: Any,
) -> str:
    """A model call as an instrumentor of ``dialect`` writes it; without ``said`` nothing of the answer is recorded."""
    values = DIALECTS[dialect](seen, said) | dict(attributes or {})
    return world.span(f"{dialect}.chat", values, scope=f"instrumentation.{dialect}", **where)


def _otel_genai(seen: Sequence[Message], said: Message | None) -> Attributes:
    values: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps(list(seen)),
    }
    if said is not None:
        reason = _reason(said)
        values["gen_ai.output.messages"] = json.dumps([{**said, "finish_reason": reason}])
        values["gen_ai.response.finish_reasons"] = [reason]
    return values


def _openinference(seen: Sequence[Message], said: Message | None) -> Attributes:
    values: Attributes = {"openinference.span.kind": "LLM", "llm.model_name": "tiny"}
    for number, message in enumerate(seen):
        values |= _openinference_message(f"llm.input_messages.{number}.message", message)
    if said is not None:
        values |= _openinference_message("llm.output_messages.0.message", said)
        values["llm.finish_reason"] = "tool_calls" if _reason(said) == "tool_call" else "stop"
    return values


def _openinference_message(place: str, message: Message) -> Attributes:
    values: Attributes = {f"{place}.role": message["role"]}
    if content := _content(message):
        values[f"{place}.content"] = content
    for number, part in enumerate(_calls(message)):
        call = f"{place}.tool_calls.{number}.tool_call"
        values[f"{call}.function.name"] = part["name"]
        values[f"{call}.function.arguments"] = json.dumps(part["arguments"])
        if part.get("id"):
            values[f"{call}.id"] = part["id"]
    for part in _responses(message):
        if part.get("id"):
            values[f"{place}.tool_call_id"] = part["id"]
    return values


def _traceloop(seen: Sequence[Message], said: Message | None) -> Attributes:
    values: Attributes = {"llm.request.type": "chat", "gen_ai.system": "OpenAI", "gen_ai.request.model": "tiny"}
    for number, message in enumerate(seen):
        values |= _traceloop_message(f"gen_ai.prompt.{number}", message)
    if said is not None:
        values |= _traceloop_message("gen_ai.completion.0", said)
        values["gen_ai.completion.0.finish_reason"] = "tool_calls" if _reason(said) == "tool_call" else "stop"
    return values


def _traceloop_message(place: str, message: Message) -> Attributes:
    values: Attributes = {f"{place}.role": message["role"]}
    if content := _content(message):
        values[f"{place}.content"] = content
    for number, part in enumerate(_calls(message)):
        values[f"{place}.tool_calls.{number}.name"] = part["name"]
        values[f"{place}.tool_calls.{number}.arguments"] = json.dumps(part["arguments"])
        if part.get("id"):
            values[f"{place}.tool_calls.{number}.id"] = part["id"]
    for part in _responses(message):
        if part.get("id"):
            values[f"{place}.tool_call_id"] = part["id"]
    return values


def _content(message: Message) -> str:
    return "".join(part.get("content", part.get("response", "")) for part in message["parts"])


def _calls(message: Message) -> list[Message]:
    return [part for part in message["parts"] if part["type"] == "tool_call"]


def _responses(message: Message) -> list[Message]:
    return [part for part in message["parts"] if part["type"] == "tool_call_response"]


def _reason(said: Message) -> str:
    return "tool_call" if _calls(said) else "stop"


DIALECTS: dict[str, Callable[[Sequence[Message], Message | None], Attributes]] = {
    "otel_genai": _otel_genai,
    "openinference": _openinference,
    "traceloop": _traceloop,
}
