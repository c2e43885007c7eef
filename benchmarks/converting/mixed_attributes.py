"""How three dialects write one model call, one tool call and one agent: attributes as our collector stores them.

``otel_genai`` is OpenTelemetry's convention, messages as JSON; ``openinference`` numbers the parts of messages and
keeps request and response whole beside them; ``openllmetry`` is its release 0.40, which numbers messages.
"""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from converting.mixed_episodes import Episode, Message, ModelCall, ToolUse
from converting.mixed_texts import Tool

MODEL: Final = "small-agent"
VERSION: Final = "small-agent@v7"

Attributes = dict[str, str]


class Dialect(NamedTuple):
    """Who wrote the spans."""

    scope: str
    call_name: str

    def agent(self, episode: Episode) -> Attributes:
        """Attributes of the agent's span."""
        return _AGENTS[self.scope](episode)

    def call(self, episode: Episode, call: ModelCall) -> Attributes:
        """Attributes of a model call's span."""
        return _CALLS[self.scope](episode, call)

    def tool(self, use: ToolUse) -> Attributes:
        """Attributes of a tool's span."""
        return _USES[self.scope](use)


_OTEL: Final = "opentelemetry.util.genai.handler"
_OPENINFERENCE: Final = "openinference.instrumentation.langchain"
_OPENLLMETRY: Final = "opentelemetry.instrumentation.langchain"
DIALECTS: Final = {
    "otel_genai": Dialect(_OTEL, f"chat {MODEL}"),
    "openinference": Dialect(_OPENINFERENCE, "ChatOpenAI"),
    "openllmetry": Dialect(_OPENLLMETRY, "ChatOpenAI.chat"),
}


def _used(call: ModelCall) -> tuple[int, int]:
    """Tokens of the input and of the output."""
    said = len(call.said.tokens()) if call.said else 0
    return sum(len(message.tokens()) for message in call.seen), said


# --- OpenTelemetry's convention ---


def _otel_agent(episode: Episode) -> Attributes:
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": episode.agent.name}


def _otel_call(episode: Episode, call: ModelCall) -> Attributes:
    definitions = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema}
        for tool in episode.agent.tools
    ]
    found = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.temperature": "0.7",
        "gen_ai.tool.definitions": json.dumps(definitions),
        "gen_ai.input.messages": json.dumps([_otel_message(message) for message in call.seen]),
    }
    if call.said is None:
        return found
    reason = "tool_call" if call.said.calls else "stop"
    seen, said = _used(call)
    return found | {
        "gen_ai.response.id": call.response_id,
        "gen_ai.response.model": VERSION,
        "gen_ai.response.finish_reasons": json.dumps([reason]),
        "gen_ai.usage.input_tokens": str(seen),
        "gen_ai.usage.output_tokens": str(said),
        "gen_ai.output.messages": json.dumps([{**_otel_message(call.said), "finish_reason": reason}]),
    }


def _otel_message(message: Message) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if message.answers:
        parts = [{"type": "tool_call_response", "id": message.answers, "response": message.text}]
    elif message.text:
        parts = [{"type": "text", "content": message.text}]
    parts += [
        {"type": "tool_call", "id": use.id, "name": use.name, "arguments": use.arguments} for use in message.calls
    ]
    return {"role": message.role, "parts": parts}


def _otel_tool(use: ToolUse) -> Attributes:
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": use.name,
        "gen_ai.tool.call.id": use.id,
        "gen_ai.tool.call.arguments": json.dumps(use.arguments),
    }
    return found if use.error else found | {"gen_ai.tool.call.result": use.result}


# --- OpenInference ---


def _openinference_agent(episode: Episode) -> Attributes:
    return {"openinference.span.kind": "AGENT", "agent.name": episode.agent.name}


def _openinference_call(episode: Episode, call: ModelCall) -> Attributes:
    given = {"model": MODEL, "temperature": 0.7}
    definitions = [_function(tool) for tool in episode.agent.tools]
    request = {**given, "messages": [_openai_message(message) for message in call.seen], "tools": definitions}
    found = {
        "openinference.span.kind": "LLM",
        "llm.system": "openai",
        "llm.model_name": VERSION,
        "llm.invocation_parameters": json.dumps(given),
        "input.value": json.dumps(request),
        "input.mime_type": "application/json",
    }
    found |= {f"llm.tools.{place}.tool.json_schema": json.dumps(tool) for place, tool in enumerate(definitions)}
    found |= _numbered("llm.input_messages", call.seen)
    if call.said is None:
        return found
    reason = "tool_calls" if call.said.calls else "stop"
    choice = {"index": 0, "finish_reason": reason, "message": _openai_message(call.said)}
    seen, said = _used(call)
    return found | {
        **_numbered("llm.output_messages", [call.said]),
        "llm.finish_reason": reason,
        "llm.token_count.prompt": str(seen),
        "llm.token_count.completion": str(said),
        "output.value": json.dumps({"id": call.response_id, "model": VERSION, "choices": [choice]}),
        "output.mime_type": "application/json",
    }


def _numbered(prefix: str, messages: Iterable[Message]) -> Attributes:
    found: Attributes = {}
    for place, message in enumerate(messages):
        own = f"{prefix}.{place}.message"
        found[f"{own}.role"] = message.role
        if message.text:
            found[f"{own}.content"] = message.text
        if message.answers:
            found[f"{own}.tool_call_id"] = message.answers
        for number, use in enumerate(message.calls):
            asked = f"{own}.tool_calls.{number}.tool_call"
            found[f"{asked}.id"] = use.id
            found[f"{asked}.function.name"] = use.name
            found[f"{asked}.function.arguments"] = json.dumps(use.arguments)
    return found


def _function(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


def _openai_message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = {"role": message.role, "content": message.text or None}
    if message.answers:
        found["tool_call_id"] = message.answers
    if message.calls:
        found["tool_calls"] = [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": json.dumps(use.arguments)}}
            for use in message.calls
        ]
    return found


def _openinference_tool(use: ToolUse) -> Attributes:
    found = {
        "openinference.span.kind": "TOOL",
        "tool.name": use.name,
        "tool.id": use.id,
        "input.value": json.dumps(use.arguments),
        "input.mime_type": "application/json",
    }
    return found if use.error else found | {"output.value": use.result}


# --- OpenLLMetry ---


def _openllmetry_agent(episode: Episode) -> Attributes:
    return {"traceloop.span.kind": "agent", "traceloop.entity.name": episode.agent.name}


def _openllmetry_call(episode: Episode, call: ModelCall) -> Attributes:
    found = {
        "gen_ai.system": "OpenAI",
        "llm.request.type": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.temperature": "0.7",
    }
    for place, tool in enumerate(episode.agent.tools):
        found[f"llm.request.functions.{place}.name"] = tool.name
        found[f"llm.request.functions.{place}.description"] = tool.description
        found[f"llm.request.functions.{place}.parameters"] = json.dumps(tool.schema)
    found |= indexed("gen_ai.prompt", call.seen)
    if call.said is None:
        return found
    seen, said = _used(call)
    return found | {
        **indexed("gen_ai.completion", [call.said]),
        "gen_ai.completion.0.finish_reason": "tool_calls" if call.said.calls else "stop",
        "gen_ai.response.id": call.response_id,
        "gen_ai.response.model": VERSION,
        "gen_ai.usage.prompt_tokens": str(seen),
        "gen_ai.usage.completion_tokens": str(said),
        "llm.usage.total_tokens": str(seen + said),
    }


def indexed(prefix: str, messages: Iterable[Message]) -> Attributes:
    """Messages as numbered attributes, as OpenLLMetry and Agent Lightning's tracer write them."""
    found: Attributes = {}
    for place, message in enumerate(messages):
        own = f"{prefix}.{place}"
        found[f"{own}.role"] = message.role
        if message.text:
            found[f"{own}.content"] = message.text
        if message.answers:
            found[f"{own}.tool_call_id"] = message.answers
        for number, use in enumerate(message.calls):
            found[f"{own}.tool_calls.{number}.id"] = use.id
            found[f"{own}.tool_calls.{number}.name"] = use.name
            found[f"{own}.tool_calls.{number}.arguments"] = json.dumps(use.arguments)
    return found


def _openllmetry_tool(use: ToolUse) -> Attributes:
    found = {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": use.name,
        "traceloop.entity.input": json.dumps(use.arguments),
    }
    return found if use.error else found | {"traceloop.entity.output": use.result}


_AGENTS: Final = {_OTEL: _otel_agent, _OPENINFERENCE: _openinference_agent, _OPENLLMETRY: _openllmetry_agent}
_CALLS: Final = {_OTEL: _otel_call, _OPENINFERENCE: _openinference_call, _OPENLLMETRY: _openllmetry_call}
_USES: Final = {_OTEL: _otel_tool, _OPENINFERENCE: _openinference_tool, _OPENLLMETRY: _openllmetry_tool}
