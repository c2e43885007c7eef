"""Convert ATIF trajectories to the spans of a live agent, and a score.

Each step of the agent becomes a model call, whose input is the messages before it, and each result of its tool calls a
tool call. All are children of one ``invoke_agent`` span. What spanloop wrote under ``extra.spanloop`` makes the spans
of an exported episode equal to the recorded ones in all that ATIF and OpenTelemetry share.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from spanloop.semconv import atif
from spanloop.semconv import attributes as names

from .import_requests import iso_nanoseconds
from .report import BadItemError

_PROMPT_TOKENS: Final = "spanloop.prompt_token_ids"
_RESPONSE_TOKENS: Final = "spanloop.response_token_ids"
_LOGPROBS: Final = "spanloop.logprobs"

SpanFields = tuple[dict[str, object], int | None, int]
"""Attributes, start (nanoseconds since the epoch, None without a time) and duration (nanoseconds) of a span."""


def is_atif(fields: Mapping[str, object]) -> bool:
    """Return whether an object is a trajectory."""
    version = fields.get("schema_version")
    return isinstance(version, str) and version.startswith(atif.SCHEMA_PREFIX)


def reward_of(trajectory: Mapping[str, object]) -> object:
    """Return the reward of the last step of the policy that has one, else None."""
    steps = [_fields(step, "steps") for step in _list(trajectory.get("steps"), "steps")]
    rewards = [atif.extra_of(step).get("reward") for step in steps]
    return next((reward for reward in reversed(rewards) if reward is not None), None)


def task_of(trajectory: Mapping[str, object]) -> str:
    """Return the task id; empty without one."""
    return str(atif.extra_of(trajectory).get("task_id") or "")


def span_fields(trajectory: Mapping[str, object]) -> Iterator[SpanFields]:
    """Yield the fields of each span: the agent's first, then in the order of the steps.

    Raises:
        BadItemError: A value is invalid.
    """
    agent = _fields(trajectory.get("agent"), "agent")
    agent_name = str(atif.extra_of(trajectory).get("agent_name", agent.get("name") or ""))
    definitions = _list(agent.get("tool_definitions") or [], "agent.tool_definitions")
    tools = [tool.get("function", tool) for tool in (_fields(each, "agent.tool_definitions") for each in definitions)]
    common = {names.GEN_AI_AGENT_NAME: agent_name}
    yield {names.GEN_AI_OPERATION_NAME: "invoke_agent", **common}, None, 0
    conversation: list[atif.Json] = []
    is_called = False
    for index, item in enumerate(_list(trajectory.get("steps"), "steps")):
        step = _fields(item, f"steps[{index}]")
        extra = atif.extra_of(step)
        if extra.get(atif.BEGINS):
            conversation = []
        message, *results = _messages(step, f"steps[{index}]")
        is_copy = bool(step.get("is_copied_context") or extra.get("is_context"))
        if message.get("role") == "assistant" and not is_copy:
            is_called = True
            stated = extra.get("tools", tools)
            yield _model_call(step, message, conversation, _json(stated) if stated else "", agent)
            yield from (
                ({**fields, names.GEN_AI_AGENT_NAME: str(extra.get("agent_name", agent_name))}, None, 0)
                for fields in _tool_calls(message, results, extra.get("tool_results") or ())
            )
        conversation = [*conversation, message, *results]
    if not is_called:
        raise BadItemError("no_model_call", "steps", "no step of the agent", "at least one with source agent")


def _model_call(
    step: Mapping[str, Any], message: atif.Json, conversation: list[atif.Json], tools: str, agent: Mapping[str, Any]
) -> SpanFields:
    extra, metrics = atif.extra_of(step), _fields(step.get("metrics") or {}, "metrics")
    # What an exported step lacks was not recorded; a step of another program has the trajectory's model.
    model = str(step.get("model_name") or ("" if extra else agent.get("model_name")) or "")
    has_calls = any(part.get("type") == "tool_call" for part in message.get("parts") or ())
    reason = str(extra.get("finish_reason", "tool_call" if has_calls else "stop"))
    stated = {"finish_reason": extra["message_finish_reason"]} if "message_finish_reason" in extra else {}
    attributes: dict[str, object] = {
        names.GEN_AI_OPERATION_NAME: "chat",
        names.GEN_AI_AGENT_NAME: str(extra.get("agent_name", agent.get("name") or "")),
        names.GEN_AI_REQUEST_MODEL: model,
        names.GEN_AI_RESPONSE_MODEL: model,
        names.GEN_AI_RESPONSE_ID: extra.get("response_id"),
        names.GEN_AI_RESPONSE_FINISH_REASONS: [reason] if reason else None,
        names.GEN_AI_USAGE_INPUT_TOKENS: metrics.get("prompt_tokens"),
        names.GEN_AI_USAGE_OUTPUT_TOKENS: metrics.get("completion_tokens"),
        names.GEN_AI_TOOL_DEFINITIONS: tools,
        names.GEN_AI_INPUT_MESSAGES: _json(conversation),
        names.GEN_AI_OUTPUT_MESSAGES: _json([message | stated]),
        _PROMPT_TOKENS: metrics.get("prompt_token_ids"),
        _RESPONSE_TOKENS: metrics.get("completion_token_ids"),
        _LOGPROBS: metrics.get("logprobs"),
    }
    moment = step.get("timestamp")
    started_ns = iso_nanoseconds(moment, "timestamp") if moment else None
    return attributes, started_ns, int(extra.get("duration_ns") or 0)


def _tool_calls(
    message: atif.Json, results: list[atif.Json], recorded: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, object]]:
    """Yield the attributes of the span of each result; of an exported step, those of ``recorded``."""
    calls = {part.get("id"): part for part in message.get("parts") or () if part.get("type") == "tool_call"}
    answers = [part for result in results for part in result.get("parts") or ()]
    native = [
        {"tool_call_id": part.get("id"), "content": part.get("response")}
        for part in answers
        if part.get("type") == "tool_call_response" and part.get("id") in calls
    ]
    for result in recorded or native:
        call = calls.get(result.get("tool_call_id"), {})
        is_error = result.get("status") == "error"
        yield {
            names.GEN_AI_OPERATION_NAME: "execute_tool",
            names.GEN_AI_TOOL_NAME: result.get("name") or call.get("name"),
            names.GEN_AI_TOOL_CALL_ID: result.get("tool_call_id"),
            names.GEN_AI_TOOL_CALL_ARGUMENTS: _text(call["arguments"]) if call.get("arguments") is not None else None,
            names.GEN_AI_TOOL_CALL_RESULT: _text(result.get("content")),
            names.ERROR_TYPE: (result.get("error_type") or "error") if is_error else None,
        }


def _messages(step: Mapping[str, Any], where: str) -> list[atif.Json]:
    try:
        messages = atif.messages_of(step)
    except (AttributeError, TypeError, KeyError) as error:
        raise BadItemError("bad_message", where, str(error), "a step of ATIF") from error
    if not messages or messages[0].get("role") not in {"system", "user", "assistant", "tool"}:
        raise BadItemError("bad_message", f"{where}.source", step.get("source"), "system, user or agent")
    return messages


def _fields(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadItemError("wrong_type", where, value, "an object")
    return cast("dict[str, Any]", value)


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise BadItemError("wrong_type", where, value, "a list")
    return cast("list[object]", value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
