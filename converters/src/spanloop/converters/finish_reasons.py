"""Every spelling of a finish reason, mapped to OpenTelemetry's."""

from functools import lru_cache
from typing import Final, cast

from .messages import MalformedMessagesError, parse_json

STOP: Final = "stop"
LENGTH: Final = "length"
TOOL_CALL: Final = "tool_call"
CONTENT_FILTER: Final = "content_filter"
ERROR: Final = "error"
MALFORMED_CALL: Final = "malformed_tool_call"
"""The service could not read the tool call that the model wrote, and left it out."""

_SPELLINGS: Final = {
    "stop": STOP,
    "end": STOP,
    "end_turn": STOP,
    "finished": STOP,
    "stop_sequence": STOP,
    "eos": STOP,
    "eos_token": STOP,
    "complete": STOP,
    "completed": STOP,
    "length": LENGTH,
    "max_tokens": LENGTH,
    "maxtokens": LENGTH,
    "max_length": LENGTH,
    "incomplete": LENGTH,
    "max_output_tokens": LENGTH,
    "model_length": LENGTH,
    "model_context_window_exceeded": LENGTH,
    "tool_call": TOOL_CALL,
    "tool_calls": TOOL_CALL,
    "tool_use": TOOL_CALL,
    "function_call": TOOL_CALL,
    "function_calls": TOOL_CALL,
    "tool": TOOL_CALL,
    "tool_execution": TOOL_CALL,
    "content_filter": CONTENT_FILTER,
    "content_filtered": CONTENT_FILTER,
    "safety": CONTENT_FILTER,
    "recitation": CONTENT_FILTER,
    "blocklist": CONTENT_FILTER,
    "prohibited_content": CONTENT_FILTER,
    "guardrail_intervened": CONTENT_FILTER,
    "refusal": CONTENT_FILTER,
    "spii": CONTENT_FILTER,
    "image_safety": CONTENT_FILTER,
    "language": CONTENT_FILTER,
    "error_toxic": CONTENT_FILTER,
    "error_limit": LENGTH,
    "token_limit": LENGTH,
    "max_tokens_reached": LENGTH,
    "max_completion_tokens": LENGTH,
    "contentfilter": CONTENT_FILTER,
    "contentfiltered": CONTENT_FILTER,
    "malformed_function_call": MALFORMED_CALL,
    "malformed_tool_call": MALFORMED_CALL,
    "unexpected_tool_call": MALFORMED_CALL,
}


@lru_cache(maxsize=256)
def canonical_finish_reason(text: str) -> str:
    """The reason in OpenTelemetry's spelling; one that nobody knows stays as it is, in lower case.

    Args:
        text: One reason, or a JSON list of them (one a choice), of which the first counts.
    """
    reason = text.strip()
    if reason.startswith("["):
        try:
            found = parse_json(reason)
        except MalformedMessagesError:
            found = [reason.strip("[]'\" ")]
        reasons = cast("list[object]", found)
        reason = str(reasons[0] or "") if reasons else ""
    lowered = reason.rsplit(".", maxsplit=1)[-1].lower().replace("-", "_")
    return _SPELLINGS.get(lowered, "" if lowered in {"none", "null"} else lowered)
