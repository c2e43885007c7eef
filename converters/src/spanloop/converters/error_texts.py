"""Whether a tool's answer tells of an error, by how it begins.

Invariant: an answer that merely speaks of errors is none. What counts is how programs say that they failed: an error
object, an exception's name, a status line, a shell's complaint, or a sentence about the call itself (the tool, the
request, the server), at the beginning of the text. That nothing was found is an answer.
"""

import re
from typing import Final, NamedTuple, cast

from .failure_patterns import failure_pattern, failure_patterns, first_letters
from .messages import MalformedMessagesError, dump, parse_json
from .status_codes import STATUS_KEYS, is_error_status

CALL_FAILED: Final = failure_pattern("tool_error", "call_failed")
"""The call itself, or what was called, and nothing about what was asked for."""

ERROR_TEXTS: Final = failure_patterns("tool_error")
"""In order of precedence. A pattern is matched at the start of the text."""

_LANGUAGES: Final = failure_patterns("language")
_SHORT: Final = 400
"""Characters: a longer answer in another language tells of other things than an error."""

_HEAD: Final = 160
"""Characters from the start of an answer within which a sign of an error stands."""
_SIGN_TEXTS: Final = ("err", "exc", "fail", "fehl", "time", "http", "sh: ", "[ssl", "quota")
_LANGUAGE_SIGNS: Final = ("err", "fehl")
_SIGN_STARTS: Final = first_letters("english")
_LANGUAGE_STARTS: Final = first_letters("other_languages")
_SIGNS_IN_OTHER_SCRIPTS: Final = frozenset("".join(first_letters("other_scripts")))


class Verdict(NamedTuple):
    """What a text rule saw."""

    rule: str
    error_type: str
    confidence: float


_TYPE_IN_TEXT: Final = re.compile(r"\b([A-Z]\w*(?:Error|Exception))\b")
_ERROR_KEYS: Final = (
    *("error", "errors", "exception", "isError", "is_error", "errorMessage", "error_message", "errorType"),
    *("stackTrace", "traceback"),
)
_SAYS_WHY: Final = frozenset({"message", "msg", "detail", "description"})
"""Beside a mere ``code``, which may be anything's."""
_TEXT_KEYS: Final = ("message", "detail", "details", "msg", "result", "output", "content", "response", "text", "reason")
_OUTCOME_KEYS: Final = frozenset({"status", "success", "ok", "succeeded"})
"""What would have told of an error where there was one."""
_MOST_KEYS: Final = 3
"""An object of so few keys is an envelope around its text."""
_SIGNS: Final = "\u274c\u26a0\u2757\u2716\u2717\U0001f6ab\ufe0f"
"""Crosses and warning signs before the words."""


def error_in_text(content: str) -> Verdict | None:
    """The error that a tool's answer tells of, or None."""
    stripped = content.lstrip()
    if stripped.startswith(("{", '[{"type"')):
        return _error_in_json(stripped)
    if stripped[:1] in _SIGNS:
        stripped = stripped.lstrip(_SIGNS).lstrip()
    head = stripped[:_HEAD].lower()
    starts = [word[:4] for word in head.split()]
    has_sign = head[:1] in _DIGITS_OF_STATUS or any(sign in head for sign in _SIGN_TEXTS)
    if has_sign or not _SIGN_STARTS.isdisjoint(starts):
        rule = next((rule for rule in ERROR_TEXTS if rule.match(stripped)), None)
        if rule is not None:
            found = _TYPE_IN_TEXT.search(content[:2_000])
            return Verdict(rule.name, found.group(1) if found else "", rule.confidence)
    if len(stripped) > _SHORT or not (
        any(sign in head for sign in _LANGUAGE_SIGNS)
        or not _LANGUAGE_STARTS.isdisjoint(starts)
        or (not head.isascii() and not _SIGNS_IN_OTHER_SCRIPTS.isdisjoint(head))
    ):
        return None
    shown = next((pattern for pattern in _LANGUAGES if pattern.search(head)), None)
    return Verdict(f"language_{shown.name}", "", 0.75) if shown else None


_DIGITS_OF_STATUS: Final = frozenset({"4", "5"})


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
        or any(is_error_status(fields.get(key)) for key in STATUS_KEYS)
        or (is_error_status(fields.get("code")) and not _SAYS_WHY.isdisjoint(fields))
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
