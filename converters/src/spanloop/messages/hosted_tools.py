"""Calls of tools that stand in parts of a provider's own type, most of them run by the provider.

OpenAI's Responses items (``mcp_call``, ``web_search_call``, ``custom_tool_call``), Anthropic's ``server_tool_use`` and
``web_search_tool_result``, OpenTelemetry's ``server_tool_call``, Gemini's ``executable_code``. Invariant: the parts
stay as they came; a call and its answer are views on them. An item that the client answers has a ``call_id``; one that
the provider ran holds its answer.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, cast

from .codec import dump, parse_json, parse_json_or_none, text_of
from .json_values import as_fields
from .model import Message, ToolCall, ToolResponse

Fields = Mapping[str, object]

_CALL_ENDS: Final = ("_call", "_tool_use")
_ANSWER_ENDS: Final = ("_call_output", "_tool_result", "_tool_call_response")
_CLIENT_TYPES: Final = frozenset({"tool_call", "function_call", "function_call_output"})
"""Types of parts that have a canonical form."""

_IDS: Final = ("call_id", "tool_use_id", "id")
_ARGUMENTS: Final = ("arguments", "input", "action", "operation", "code", "queries", "server_tool_call")
_ANSWERS: Final = ("error", "output", "outputs", "results", "result", "content", "server_tool_call_response")
_FAILED: Final = ("failed", "incomplete", "error")
_GEMINI_CALLS: Final = ("executable_code", "executableCode")
_GEMINI_ANSWERS: Final = ("code_execution_result", "codeExecutionResult")


class HostedAnswer(NamedTuple):
    """An answer within the message that holds its call."""

    response: ToolResponse
    is_error: bool


def hosted_call(part: Fields) -> ToolCall | None:
    """The call that a part of a provider's own type is; None where it is none."""
    kind = part.get("type")
    if not isinstance(kind, str):
        code = next((part[key] for key in _GEMINI_CALLS if isinstance(part.get(key), dict)), None)
        return None if code is None else ToolCall("", "code_execution", dump(code), is_valid=True)
    if not kind.endswith(_CALL_ENDS) or kind in _CLIENT_TYPES:
        return None
    end = next(end for end in _CALL_ENDS if kind.endswith(end))
    name = part.get("name") or kind.removesuffix(end)
    key = next((key for key in _ARGUMENTS if part.get(key) is not None), "")
    return ToolCall(text_of(_first(part, _IDS)), text_of(name), _arguments(key, part.get(key)), is_valid=True)


def hosted_answer(part: Fields) -> HostedAnswer | None:
    """The answer that a part of a provider's own type is, or holds beside its call; None where there is none."""
    kind = part.get("type")
    if not isinstance(kind, str):
        ran = next((part[key] for key in _GEMINI_ANSWERS if isinstance(part.get(key), dict)), None)
        fields = cast("Fields", ran or {})
        is_error = not str(fields.get("outcome", "OK")).endswith("OK")
        return None if ran is None else HostedAnswer(ToolResponse("", text_of(fields.get("output"))), is_error)
    if kind in _CLIENT_TYPES:
        return None
    is_answer = kind.endswith(_ANSWER_ENDS)
    if not is_answer and (not kind.endswith("_call") or part.get("call_id") is not None or not _has_run(part)):
        return None
    value = _first(part, _ANSWERS)
    inner = str(as_fields(value).get("type", ""))
    is_error = part.get("is_error") is True or part.get("status") in _FAILED or inner.endswith("_error")
    is_error = is_error or bool(part.get("error"))
    return HostedAnswer(ToolResponse(text_of(_first(part, _IDS)), text_of(value)), is_error)


def has_hosted_items(items: Iterable[object]) -> bool:
    """Whether some of the items of an answer are calls of tools in a provider's own form."""
    return any(isinstance(item, dict) and hosted_call(cast("Fields", item)) is not None for item in items)


def hosted_answers(message: Message) -> list[HostedAnswer]:
    """The answers in the message of the calls: of tools that the provider ran."""
    if not message.tool_responses or not message.tool_calls:
        return []
    fields = cast("Fields", parse_json(message.json))
    parts = (cast("Fields", part) for part in cast("list[object]", fields.get("parts", [])) if isinstance(part, dict))
    answers = [
        answer.is_error if (answer := hosted_answer(part)) else part.get("is_error") is True
        for part in parts
        if part.get("type") == "tool_call_response" or hosted_answer(part)
    ]
    return [HostedAnswer(*pair) for pair in zip(message.tool_responses, answers, strict=True)]


def _has_run(part: Fields) -> bool:
    """Whether the provider ran the item: it says how that ended, or holds what came of it."""
    return part.get("status") not in {"in_progress", "searching", "interpreting", "generating"}


def _arguments(key: str, value: object) -> str:
    """The JSON of an object: of arguments as they are, of any other value by its name."""
    if value is None or value == "":
        return "{}"
    decoded = parse_json_or_none(value) if isinstance(value, str) else value
    return dump(cast("Fields", decoded) if isinstance(decoded, dict) else {key: value})


def _first(part: Fields, keys: Iterable[str]) -> object:
    return next((part[key] for key in keys if part.get(key) not in (None, "", [])), None)
