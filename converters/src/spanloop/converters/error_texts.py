"""Whether a tool's answer tells of an error, by how it begins.

Invariant: an answer that merely speaks of errors is none. What counts is how programs say that they failed: an
exception's name, a status line, a shell's complaint, or a sentence about the call itself (the tool, the request, the
server), at the beginning of the text. That nothing was found is an answer.
"""

import re
from typing import Final, NamedTuple, cast

from .failure_patterns import MOST_TEXT, failure_pattern, failure_patterns
from .messages import MalformedMessagesError, dump, parse_json

CALL_FAILED: Final = failure_pattern("tool_error", "call_failed")
"""The call itself, or what was called, and nothing about what was asked for."""

ERROR_TEXTS: Final = failure_patterns("tool_error")
"""In order of precedence. A pattern is matched at the
start of the text."""

_ANY_ERROR: Final = re.compile(
    "|".join(f"(?{'i' if rule.regex.flags & re.IGNORECASE else ''}:{rule.regex.pattern})" for rule in ERROR_TEXTS),
    re.ASCII,
)
"""All of them in one: most answers tell of none."""

_TYPE_IN_TEXT: Final = re.compile(r"\b([A-Z]\w*(?:Error|Exception))\b")
_ERROR_KEYS: Final = (
    *("error", "errors", "exception", "isError", "is_error", "errorMessage", "error_message", "errorType"),
    *("stackTrace", "traceback"),
)
_STATUS_KEYS: Final = ("status_code", "statusCode", "http_status", "httpStatus", "status")
_SAYS_WHY: Final = frozenset({"message", "msg", "detail", "description"})
"""Beside a mere ``code``, which may be anything's."""
_TEXT_KEYS: Final = ("message", "detail", "details", "msg", "result", "output", "content", "response", "text", "reason")
_OUTCOME_KEYS: Final = frozenset({"status", "success", "ok", "succeeded"})
"""What would have told of an error where there was one."""
_MOST_KEYS: Final = 3
"""An object of so few keys is an envelope around its text."""
_LEAST_STATUS: Final = 400
_SIGNS: Final = "\u274c\u26a0\u2757\u2716\u2717\U0001f6ab\ufe0f"
"""Crosses and warning signs before the words."""


class Verdict(NamedTuple):
    """What a text rule saw."""

    rule: str
    error_type: str
    confidence: float


def error_in_text(content: str) -> Verdict | None:
    """The error that a tool's answer tells of, or None."""
    stripped = content.lstrip()
    if stripped.startswith(("{", '[{"type"')):
        return _error_in_json(stripped)
    if stripped[:1] in _SIGNS:
        stripped = stripped.lstrip(_SIGNS).lstrip()
    if _ANY_ERROR.match(stripped, 0, MOST_TEXT) is None:
        return None
    for rule in ERROR_TEXTS:
        if rule.match(stripped):
            found = _TYPE_IN_TEXT.search(content[:2_000])
            return Verdict(rule.name, found.group(1) if found else "", rule.confidence)
    return None


def _error_in_json(content: str) -> Verdict | None:
    fields = _fields(content)
    if fields.get("type") == "text" and isinstance(fields.get("text"), str):
        return error_in_text(str(fields["text"]))
    key = next((key for key in _ERROR_KEYS if fields.get(key)), "")
    if key:
        name = _TYPE_IN_TEXT.search(dump(fields[key]))
        return Verdict(f"json_key_{key}", name.group(1) if name else "", 0.9)
    says_so = str(fields.get("status", "")).lower() in _FAILED
    if (
        says_so
        or any(_is_error_status(fields.get(key)) for key in _STATUS_KEYS)
        or (_is_error_status(fields.get("code")) and not _SAYS_WHY.isdisjoint(fields))
    ):
        return Verdict("json_status", "", 0.85)
    if _REFUSED_FIELDS.match(dump(fields.get("detail", ""))):
        return Verdict("json_detail", "", 0.85)
    if any(fields.get(key) is False for key in ("success", "ok", "succeeded")):
        return Verdict("json_success", "", 0.85)
    is_envelope = len(fields) <= _MOST_KEYS and _OUTCOME_KEYS.isdisjoint(fields)
    held = [fields[key] for key in _TEXT_KEYS if key in fields] if is_envelope else []
    said = held[0] if held and isinstance(held[0], str) else ""
    return error_in_text(said) if said and not said.startswith(("{", "[")) else None


def _fields(content: str) -> dict[str, object]:
    """Of the object that ``content`` is, or of the first of a list of parts, as MCP servers answer; none otherwise."""
    try:
        found = parse_json(content)
    except MalformedMessagesError:
        return {}
    if isinstance(found, list):
        found = next(iter(cast("list[object]", found)), None)
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}


_REFUSED_FIELDS: Final = re.compile(r'\[\{(?=.*"loc":)(?=.*"msg":)', re.DOTALL)
"""What pydantic says of each argument that it does not take."""
_FAILED: Final = frozenset(
    {"error", "errored", "failed", "failure", "fail", "timeout", "timed_out", "exception", "crashed"}
)


def _is_error_status(value: object) -> bool:
    """Whether a value is the number of an HTTP status of failure."""
    number = int(value) if isinstance(value, str) and len(value) == _DIGITS and value.isdecimal() else value
    return isinstance(number, int) and _LEAST_STATUS <= number < _LEAST_STATUS + 200


_DIGITS: Final = 3
