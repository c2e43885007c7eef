"""Whether a tool's answer tells of an error, by how it begins.

Invariant: an answer that merely speaks of errors is none. What counts is how programs say that they failed: an error
object, an exception's name, a status line, a shell's complaint, or a sentence about the call itself (the tool, the
request, the server), at the beginning of the text. That nothing was found is an answer.
"""

import re
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from spanloop.messages import dump, parse_json_or_none
from spanloop.messages.chat_forms import as_fields, as_list

from .failure_patterns import FailurePattern, failure_pattern, failure_patterns
from .status_codes import STATUS_KEYS, is_error_status, status_in_words

CALL_FAILED: Final = failure_pattern("tool_error", "call_failed")
"""The call itself, or what was called, and nothing about what was asked for."""

_IN_LANGUAGE: Final = failure_pattern("tool_error", "in_language")
ERROR_TEXTS: Final = tuple(pattern for pattern in failure_patterns("tool_error") if pattern is not _IN_LANGUAGE)
"""In order of precedence. A pattern is matched at the start of the text."""

_SHORT: Final = 400
"""Characters: a longer answer tells of other things than an error, unless it begins as one."""

_HEAD: Final = 160
"""Characters from the start of an answer within which a sign of an error stands."""


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
    stripped = stripped.lstrip(_SIGNS).lstrip() if stripped[:1] in _SIGNS else stripped
    head = stripped[:_HEAD]
    lowered = head.lower()
    has_sign = head[:1] in _SIGN_STARTS or any(sign in lowered for sign in _SIGN_TEXTS)
    starts = {word[:4] for word in lowered.replace("'", " ").split()}
    if not has_sign and _WORD_STARTS.isdisjoint(starts) and (head.isascii() or not _IDEOGRAPHS.search(head)):
        return None
    for candidate in _AT_START:
        if (has_sign or not candidate.word_starts.isdisjoint(starts)) and candidate.pattern.match(stripped):
            name = _TYPE_IN_TEXT.search(content[:2_000])
            return Verdict(candidate.pattern.name, name.group(1) if name else "", candidate.pattern.confidence)
    return _error_within(head, starts, has_sign=has_sign) if len(stripped) <= _SHORT else None


def _error_within(head: str, starts: AbstractSet[str], *, has_sign: bool) -> Verdict | None:
    if _HAS_CODE.search(head) and status_in_words(head):
        return Verdict("status", "", 0.85)
    for candidate in _WITHIN:
        if candidate.may_match(head, starts, has_sign=has_sign) and candidate.pattern.search(head):
            return Verdict(f"words_{candidate.pattern.name}", "", 0.75)
    return None


class _Candidate(NamedTuple):
    """A pattern with what every match of it holds, so that few texts are searched."""

    pattern: FailurePattern
    word_starts: frozenset[str]
    """The first four letters of its words."""
    ideographs: re.Pattern[str]
    """The beginnings of its Chinese and Japanese words."""

    def may_match(self, head: str, starts: AbstractSet[str], *, has_sign: bool) -> bool:
        if not self.word_starts.isdisjoint(starts) or (has_sign and self.pattern is _IN_LANGUAGE):
            return True
        return not head.isascii() and self.ideographs.search(head) is not None


def _candidate(pattern: FailurePattern) -> _Candidate:
    source = re.sub(r"\\[A-Za-z]", " ", pattern.regex.pattern)
    ideographs = {re.escape(run[:2]) for run in re.findall(r"[\u3040-\u30ff\u3400-\u9fff]{2,}", source)}
    words = (run[:4].lower() for run in re.findall(r"[^\W\d_]{4,}", source))
    return _Candidate(pattern, frozenset(words) - _FILLERS, re.compile("|".join(sorted(ideographs)) or r"(?!)"))


_SIGN_TEXTS: Final = ("err", "exc", "fail", "fehl", "http", "sh: ", "[ssl", "ошиб")
_HAS_CODE: Final = re.compile(r"[45]\d\d")
_SIGN_STARTS: Final = frozenset("45[(<*`'\"/")
_FILLERS: Final = frozenset({"with", "from", "this", "your", "been", "have", "does", "into", "foun", "find", "when"})
_AT_START: Final = tuple(map(_candidate, ERROR_TEXTS))
_WITHIN: Final = tuple(
    map(
        _candidate,
        (
            *failure_patterns("environment"),
            _IN_LANGUAGE,
            *map(failure_pattern, ("unknown_tool", "arguments_refused", "stopped")),
        ),
    )
)
"""What is searched in the first words of a short text."""
_WORD_STARTS: Final = frozenset[str]().union(*(each.word_starts for each in (*_AT_START, *_WITHIN)))
_IDEOGRAPHS: Final = re.compile("|".join(each.ideographs.pattern for each in _WITHIN))


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
    if isinstance(fields.get("detail"), list) and _REFUSED_FIELDS.match(dump(fields["detail"])):
        return Verdict("json_detail", "", 0.85)
    if any(fields.get(key) is False for key in ("success", "ok", "succeeded")):
        return Verdict("json_success", "", 0.85)
    is_envelope = len(fields) <= _MOST_KEYS and _OUTCOME_KEYS.isdisjoint(fields)
    held = [fields[key] for key in _TEXT_KEYS if key in fields] if is_envelope else []
    said = held[0] if held and isinstance(held[0], str) else ""
    return error_in_text(said) if said and not said.startswith(("{", "[")) else None


def _fields(content: str) -> dict[str, object]:
    """Of the object that ``content`` is, or of the first of a list of parts, as MCP servers answer; none otherwise."""
    found = parse_json_or_none(content)
    return as_fields(next(iter(as_list(found)), found))


_REFUSED_FIELDS: Final = re.compile(r'\[\{(?=.*"loc":)(?=.*"msg":)', re.DOTALL)
"""What pydantic says of each argument that it does not take."""
_FAILED: Final = frozenset(
    {"error", "errored", "failed", "failure", "fail", "timeout", "timed_out", "exception", "crashed"}
)
