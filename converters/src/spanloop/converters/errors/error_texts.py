"""Whether a tool's answer tells of an error, by how it begins.

Invariant: an answer that merely speaks of errors is none. What counts is how programs say that they failed: an error
object, an exception's name, a status line, a shell's complaint, or a sentence about the call itself (the tool, the
request, the server), at the beginning of the text. That nothing was found is an answer.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.foundation.surrogates import replace_surrogates
from spanloop.messages import dump
from spanloop.messages.json_values import as_fields, as_list

from ..results.answer_representations import represented
from .failure_patterns import MOST_TEXT, FailurePattern, failure_pattern, failure_patterns
from .mentions import is_mention
from .pattern_literals import required_literals
from .status_codes import STATUS_IN_WORDS, STATUS_KEYS, STATUS_STARTS, is_error_status, status_in_words

CALL_FAILED: Final = failure_pattern("tool_error", "call_failed")
"""The call itself, or what was called, and nothing about what was asked for."""

_IN_LANGUAGE: Final = failure_pattern("tool_error", "in_language")
ERROR_TEXTS: Final = tuple(pattern for pattern in failure_patterns("tool_error") if pattern is not _IN_LANGUAGE)
"""In order of precedence. A pattern is matched at the start of the text."""

_SHORT: Final = 400
"""Characters: a longer answer tells of other things than an error, unless it begins as one."""

_HEAD: Final = 160
"""Characters from the start of an answer within which a sign of an error stands."""


class DetectedError(NamedTuple):
    """An error that a tool's answer reports, and the rule that detected it."""

    rule: str
    error_type: str
    confidence: float


_TYPE_IN_TEXT: Final = re.compile(r"\b([A-Z]\w*(?:Error|Exception))\b")
_ERROR_KEYS: Final = (
    *("error", "errors", "exception", "isError", "is_error", "errorMessage", "error_message", "errorType"),
    *("stackTrace", "traceback"),
)
_REASON_KEYS: Final = frozenset({"message", "msg", "detail", "description"})
"""Beside a mere ``code``, which may be anything's."""
_TEXT_KEYS: Final = ("message", "detail", "details", "msg", "result", "output", "content", "response", "text", "reason")
_ENVELOPE_KEYS: Final = (
    *_TEXT_KEYS,
    *("structuredContent", "structured_content", "data", "body", "payload", "value", "kwargs", "envelope"),
    *("toolResult", "tool_result", "functionResponse", "function_response", "results", "return_value", "observation"),
)
_OUTCOME_KEYS: Final = frozenset({"status", "success", "ok", "succeeded"})
"""Keys that would report an error where there was one."""
_MOST_KEYS: Final = 3
"""An object of so few keys is an envelope around its text."""
_SIGNS: Final = "\u274c\u26a0\u2757\u2716\u2717\U0001f6ab\ufe0f"
"""Crosses and warning signs before the words."""


class AnswerErrors:
    """Errors in the distinct answers of a batch; each answer is judged once.

    The literals of all patterns are searched in all answers together; a pattern is matched only where one of its
    literals stands.
    """

    def __init__(self, answers: Iterable[str] = ()) -> None:
        self._errors: dict[str, DetectedError | None] = {}
        self._add(dict.fromkeys(answers))

    def __getitem__(self, answer: str) -> DetectedError | None:
        if answer not in self._errors:
            self._add((answer,))
        return self._errors[answer]

    def _add(self, answers: Iterable[str]) -> None:
        texts: dict[str, str] = {}
        for answer in answers:
            error, text = _opened(answer)
            self._errors[answer] = error
            if text and error is None:
                texts[answer] = text
        if texts:
            words = [_without_signs(text) for text in texts.values()]
            present = _present_literals([text[:MOST_TEXT] for text in words])
            self._errors |= {
                answer: _error_in_words(text, literals)
                for answer, text, literals in zip(texts, words, present, strict=True)
                if literals or text[:1] in STATUS_STARTS
            }


def _present_literals(texts: Sequence[str]) -> list[frozenset[str]]:
    if sum(map(len, texts)) < _FEW_CHARACTERS:
        lowered = [text.lower() for text in texts]
        whole = "\0".join(lowered)
        literals = [literal for literal in LITERALS if literal in whole]
        return [frozenset([literal for literal in literals if literal in text]) for text in lowered]
    column = pl.Series([replace_surrogates(text) for text in texts], dtype=pl.String).str.to_lowercase()
    return [frozenset(literals) for literals in column.str.extract_many(LITERALS, overlapping=True).to_list()]


_FEW_CHARACTERS: Final = 5_000
"""Fewer are searched for one literal after the other: polars builds its automaton anew for each search."""


def error_in_text(content: str) -> DetectedError | None:
    """Return the error that a tool's answer reports, or None."""
    return AnswerErrors()[content]


def _without_signs(content: str) -> str:
    text = content.lstrip()
    return text.lstrip(_SIGNS).lstrip() if text[:1] in _SIGNS else text


def _error_in_words(text: str, literals: AbstractSet[str]) -> DetectedError | None:
    """The error that plain text tells of, by the patterns of which ``literals`` holds one."""
    for pattern in _AT_START.candidates(literals):
        match = pattern.match(text)
        if match and not is_mention(text, 0, match.end()):
            name = _TYPE_IN_TEXT.search(text[:2_000])
            return DetectedError(pattern.name, name.group(1) if name else "", pattern.confidence)
    if len(text) > _SHORT:
        return None
    head = text[:_HEAD]
    may_name_status = head[:1] in STATUS_STARTS or not _STATUS.isdisjoint(literals)
    if may_name_status and _HAS_CODE.search(head) and status_in_words(head):
        return DetectedError("status", "", 0.85)
    for pattern in _WITHIN.candidates(literals):
        match = pattern.search(head)
        if match and not is_mention(text, match.start(), match.end()):
            return DetectedError(f"words_{pattern.name}", "", 0.75)
    return None


class _Patterns:
    """Patterns in their order, by the literals of which a match contains one."""

    def __init__(self, patterns: Sequence[FailurePattern]) -> None:
        self._patterns = patterns
        self.by_literal: dict[str, list[int]] = defaultdict(list)
        for number, pattern in enumerate(patterns):
            for literal in pattern.literals:
                self.by_literal[literal].append(number)

    def candidates(self, literals: AbstractSet[str]) -> list[FailurePattern]:
        """The patterns that may match a text with these ``literals``."""
        numbers = {number for literal in literals for number in self.by_literal.get(literal, ())}
        return [self._patterns[number] for number in sorted(numbers)]


_HAS_CODE: Final = re.compile(r"[45]\d\d\b")
_AT_START: Final = _Patterns(ERROR_TEXTS)
_WITHIN: Final = _Patterns(
    (
        *failure_patterns("environment"),
        _IN_LANGUAGE,
        *map(failure_pattern, ("unknown_tool", "arguments_refused", "stopped")),
    )
)
"""Searched in the first words of a short text."""
_STATUS: Final = required_literals(STATUS_IN_WORDS)
LITERALS: Final = sorted(_STATUS.union(_AT_START.by_literal, _WITHIN.by_literal))


class _Opened(NamedTuple):
    """The content of an answer's envelopes."""

    error: DetectedError | None
    """Error of an object."""
    text: str
    """The words to be judged; empty for none. With an error, the JSON of the object that the error is on."""


_NOTHING: Final = _Opened(None, "")


def inner_text(answer: str) -> str:
    """The text, or the object that tells of an error, inside an answer's envelopes; else the answer itself."""
    return _opened(answer).text or answer


def _opened(value: object, depth: int = 0, *, is_inner: bool = False) -> _Opened:
    """Open an answer, or a value inside of one, until an object tells of an error or words are left.

    Args:
        value: Text, or a decoded value.
        depth: Count of envelopes around it.
        is_inner: Whether it may be a record that was asked for: an item of a list, or a field such as ``data``.
    """
    if depth > _MOST_DEPTH:
        return _NOTHING
    if isinstance(value, str):
        inner = represented(value)
        opened = _NOTHING if inner is None else _opened(inner, depth + 1, is_inner=is_inner)
        if inner is not None and (opened.error is not None or not value.lstrip().startswith("<")):
            return opened
        return _NOTHING if value.lstrip().startswith(("{", "[{")) else _Opened(None, value)
    if isinstance(value, list):
        return _opened_list(cast("list[object]", value), depth, is_inner=is_inner)
    return _opened_object(as_fields(value), depth, is_inner=is_inner)


def _opened_list(items: Sequence[object], depth: int, *, is_inner: bool) -> _Opened:
    """A list of content parts has the text of its first one; any other is an error where each of its items is one."""
    texts = (text for item in items if isinstance(text := as_fields(item).get("text"), str))
    if not is_inner and _is_content(items) and (text := next(texts, None)) is not None:
        return _opened(text, depth + 1)
    if len(items) > _MOST_ITEMS:
        return _NOTHING
    opened = [_opened(item, depth + 1, is_inner=True) for item in items]
    is_error = bool(opened) and all(item.error for item in opened)
    return opened[0] if is_error or (len(opened) == 1 and not is_inner) else _NOTHING


def _opened_object(fields: Mapping[str, object], depth: int, *, is_inner: bool) -> _Opened:
    if (fields.get("type") == "text" or list(fields) == ["text"]) and isinstance(fields.get("text"), str):
        return _opened(fields["text"], depth + 1)
    error = None if _OUTCOME_SIGNS.isdisjoint(fields) else _error_in_fields(fields)
    if error is not None and not (is_inner and error.rule == "json_status" and _is_record(fields)):
        return _Opened(error, dump(fields) if depth > 1 else "")
    if len(fields) > 1 and _ENVELOPES.isdisjoint(fields):
        return _NOTHING
    is_message = not _MESSAGE_KEYS.isdisjoint(fields)
    has_succeeded = not is_message and _is_marked_success(fields)
    has_words = is_message or (_OUTCOME_KEYS.isdisjoint(fields) and _count_values(fields) <= _MOST_KEYS)
    text = ""
    for key in sorted(_ENVELOPES.intersection(fields), key=_ENVELOPE_KEYS.index) if len(fields) > 1 else fields:
        value = fields[key]
        if not value or not isinstance(value, (str, dict, list)) or (has_succeeded and not _is_content(fields[key])):
            continue
        inner = _opened(cast("object", value), depth + 1, is_inner=is_inner or key not in _TRANSPARENT)
        if inner.error is not None:
            return inner
        if not text and (has_words or not isinstance(value, str)):
            text = inner.text
    return _Opened(None, text)


def _count_values(fields: Mapping[str, object]) -> int:
    return sum(key not in _BESIDE and bool(value) for key, value in fields.items())


def _is_record(fields: Mapping[str, object]) -> bool:
    """Whether a failed status is that of what was looked up: nothing beside it says why."""
    return len(fields) > 1 and _REASON_KEYS.isdisjoint(fields) and "reason" not in fields


def _is_marked_success(fields: Mapping[str, object]) -> bool:
    status = fields.get("status")
    is_status = isinstance(status, str) and status.lower() in _SUCCEEDED
    return is_status or any(fields.get(key) is True for key in ("success", "ok", "succeeded"))


def _is_content(value: object) -> bool:
    """Whether a value is a list of content parts, as MCP servers and chat APIs answer."""
    first = as_fields(next(iter(as_list(value)), None))
    return first.get("type") in _PART_TYPES or list(first) == ["text"]


_ENVELOPES: Final = frozenset(_ENVELOPE_KEYS)
_MOST_DEPTH: Final = 12
_MOST_ITEMS: Final = 100
_PART_TYPES: Final = frozenset({"text", "input_text", "output_text", "image", "audio", "resource", "resource_link"})
_TRANSPARENT: Final = frozenset({"result", "output", "content", "response", "text", "structuredContent", "kwargs"})
"""Fields that hold the whole answer."""
_MESSAGE_KEYS: Final = frozenset({"tool_call_id", "toolCallId", "tool_use_id", "toolUseId"})
"""Keys of a message around an answer, whose status is that of the framework."""
_BESIDE: Final = frozenset({"meta", "_meta", "jsonrpc", "id", "name", "role", "type", "additional_kwargs"})
_SUCCEEDED: Final = frozenset({"ok", "success", "succeeded", "successful", "completed", "complete", "done"})


def _error_in_fields(fields: Mapping[str, object]) -> DetectedError | None:
    error_keys = sorted(_ERRORS.intersection(fields), key=_ERROR_KEYS.index)
    key = next((key for key in error_keys if fields[key] and not _is_no_error(key, fields[key])), "")
    if key:
        name = _TYPE_IN_TEXT.search(dump(fields[key]))
        return DetectedError(f"json_key_{key}", name.group(1) if name else "", 0.9)
    has_failed = str(fields.get("status", "")).lower() in _FAILED
    if (
        has_failed
        or any(is_error_status(fields[key]) for key in STATUS_KEYS if key in fields)
        or (is_error_status(fields.get("code")) and not _REASON_KEYS.isdisjoint(fields))
    ):
        return DetectedError("json_status", "", 0.85)
    if str(fields.get("type")).startswith(("error", "execution_error")) and not _REASON_KEYS.isdisjoint(fields):
        return DetectedError("json_type", "", 0.85)
    if isinstance(fields.get("detail"), list) and _REFUSED_FIELDS.match(dump(fields["detail"])):
        return DetectedError("json_detail", "", 0.85)
    if any(fields[key] is False for key in ("success", "ok", "succeeded") if key in fields):
        return DetectedError("json_success", "", 0.85)
    return None


_ERRORS: Final = frozenset(_ERROR_KEYS)
_OUTCOME_SIGNS: Final = frozenset((*_ERROR_KEYS, *STATUS_KEYS, "code", "type", "detail", "success", "ok", "succeeded"))
"""One of these keys is in each object that tells of an error."""


def _is_no_error(key: str, value: object) -> bool:
    """Whether the value of an error's key tells of none, or counts the errors that a program looked for."""
    if isinstance(value, str):
        return _NO_ERROR.fullmatch(value) is not None
    return key == "errors" and isinstance(value, int) and not isinstance(value, bool)


_NO_ERROR: Final = re.compile(
    r"\s*(?:0+|none|null|nil|false|no|n/a|ok|no (?:errors?|exceptions?)\W*)\s*", re.IGNORECASE
)


_REFUSED_FIELDS: Final = re.compile(r'\[\{(?=.*"loc":)(?=.*"msg":)', re.DOTALL)
"""Pydantic's list of the arguments that it refuses."""
_FAILED: Final = frozenset(
    {"error", "errored", "failed", "failure", "fail", "timeout", "timed_out", "exception", "crashed"}
)
