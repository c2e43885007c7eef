"""Every spelling of a finish reason, mapped to OpenTelemetry's."""

from functools import lru_cache
from typing import Final, cast

from spanloop.messages import parse_json_or_none

STOP: Final = "stop"
LENGTH: Final = "length"
TOOL_CALL: Final = "tool_call"
CONTENT_FILTER: Final = "content_filter"
ERROR: Final = "error"
MALFORMED_CALL: Final = "malformed_tool_call"
"""The service could not read the tool call that the model wrote, and left it out."""

_SPELLED: Final = {
    STOP: "stop end end_turn finished stop_sequence eos eos_token complete completed",
    LENGTH: "length max_tokens maxtokens max_length incomplete max_output_tokens model_length error_limit token_limit"
    " max_tokens_reached max_completion_tokens model_context_window_exceeded",
    TOOL_CALL: "tool_call tool_calls tool_use function_call function_calls tool tool_execution",
    CONTENT_FILTER: "content_filter content_filtered contentfilter contentfiltered safety recitation blocklist spii"
    " prohibited_content guardrail_intervened refusal image_safety language error_toxic",
    MALFORMED_CALL: "malformed_function_call malformed_tool_call unexpected_tool_call",
}
_SPELLINGS: Final = {spelling: reason for reason, spelled in _SPELLED.items() for spelling in spelled.split()}


@lru_cache(maxsize=256)
def canonical_finish_reason(text: str) -> str:
    """The reason in OpenTelemetry's spelling; one that nobody knows stays as it is, in lower case.

    Args:
        text: One reason, or a JSON list of them (one a choice), of which the first counts.
    """
    reason = text.strip()
    if reason.startswith("["):
        reasons = _listed(reason)
        reason = reason.strip("[]'\" ") if reasons is None else str(next(iter(reasons), None) or "")
    lowered = reason.rsplit(".", maxsplit=1)[-1].lower().replace("-", "_")
    return _SPELLINGS.get(lowered, "" if lowered in {"none", "null"} else lowered)


def choice_finish_reasons(text: str) -> list[str]:
    """The reasons in a JSON list of them, one a choice, as they came; empty for other text."""
    reasons = _listed(text) if text.lstrip().startswith("[") else None
    return [reason if isinstance(reason, str) else "" for reason in reasons or ()]


def _listed(text: str) -> list[object] | None:
    return cast("list[object] | None", parse_json_or_none(text))
