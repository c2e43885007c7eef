"""A tool that could not find, or would not take, a value that the policy made up.

The policy's: the error says that something is not there or not acceptable, it names an argument's value (or only what
sort of thing is not there: "user not found", for an argument ``user_id``), and a word of that value occurs nowhere in
what the policy was given (system and user messages, tool responses, tool definitions). What the policy itself said
before is no source. Stays with the tool: an error that names no argument's value (the tool's own bug), a value that was
given to the policy (whoever gave it did so wrongly), and a number that is merely refused, because amounts are computed.
Nothing is said where part of what was given cannot be read.

An identifier (letters and digits, or six digits and more) that is not there and that only the user named is the
user's mistake; a plain word is not, because one may ask for what does not exist.

Two lookalikes lower the confidence: a value that is digits only may be a date or an id in another spelling.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar, Final, cast

from spanloop.converters.enums import FaultOwner
from spanloop.messages import Message, parse_json

from ...errors.failure_patterns import failure_pattern
from ...spans import Span
from ..base import ErrorClass, Finding, ToolCallContext, ToolCallRule, error_message
from .running_code import runs_code

_MISSING: Final = failure_pattern("missing")
_REFUSED: Final = failure_pattern("value_refused")
_SORT_MISSING: Final = failure_pattern("sort_missing")
"""The error's words for what is not there, before or behind."""

_MOST_TEXT: Final = 2_000
_WORD: Final = re.compile(r"[^\W_]+")
_IDENTIFIER: Final = re.compile(r"(?=.*\d)(?:(?=.*[A-Za-z])[\w#-]{4,}|\d{6,})")
_READABLE_PARTS: Final = frozenset({"text", "tool_call", "tool_call_response"})


class HallucinatedArguments(ToolCallRule):
    """A tool did not find, or refused, a value that the policy made up."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        named = _named(context) or _of_sort(context)
        given = _given(context.step.span) if named else None
        if given is None or context.result is None:
            return None
        for name, value in named:
            strange = [word for word in _WORD.findall(str(value).casefold()) if word not in given]
            if strange:
                sure = 0.75 if any(character.isalpha() for character in str(value)) else 0.5
                evidence = {"argument": name, "value": str(value), "not_given": ", ".join(strange)}
                confidence = sure * context.result.confidence
                return context.finding(ErrorClass.INVALID_ARGUMENTS, FaultOwner.POLICY, confidence, **evidence)
        return None


class GivenValue(ToolCallRule):
    """A tool lacks, or refuses, a value that the policy was given: whoever gave it, or the tool, is at fault."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """Return the finding; None without one."""
        named = _named(context)
        given = _given(context.step.span) if named else None
        if given is None or context.result is None:
            return None
        name, value = named[0]
        evidence = {"argument": name, "value": str(value)}
        return context.finding(ErrorClass.TOOL_ERROR, FaultOwner.UNKNOWN, 0.5 * context.result.confidence, **evidence)


class WrongUserValue(ToolCallRule):
    """A tool did not find an identifier that only the user had given."""

    needs_sign: ClassVar[bool] = True

    def find(self, context: ToolCallContext) -> Finding | None:
        """An identifier that is not there, and that only the user ever named."""
        result, span = context.result, context.step.span
        if result is None or not result.is_error or not _MISSING.search(f"{result.error_type}: {context.result_text}"):
            return None
        for name, value in _named(context):
            text = str(value)
            if not _IDENTIFIER.fullmatch(text.strip()):
                continue
            by_user = [index for index, message in enumerate(span.input) if _has_value(message, "user", text)]
            by_others = any(
                _has_value(message, "system", text)
                or any(_names(answer.content, text) for answer in message.tool_responses)
                for message in span.input
            )
            if by_user and not by_others and not _names(span.tools, text):
                evidence: dict[str, object] = {"argument": name, "value": text, "message": by_user[0]}
                return context.finding(
                    ErrorClass.INVALID_USER_INPUT, FaultOwner.USER, 0.7 * result.confidence, **evidence
                )
        return None


def _has_value(message: Message, role: str, value: str) -> bool:
    return message.role == role and _names(message.text, value)


def _named(context: ToolCallContext) -> list[tuple[str, str | int | float]]:
    """(argument, value) of those values that an error about something missing or unacceptable names."""
    result, span = context.result, context.step.span
    if result is None or not result.is_error or not context.call.is_valid or not span.input or span.problem is not None:
        return []
    kind = f"{result.error_type}: {context.result_text}"
    is_missing = _MISSING.search(kind) is not None
    if not is_missing and not _REFUSED.search(kind) and not _is_about_arguments(context):
        return []
    return [
        (name, value)
        for name, value in _values(context.call.arguments)
        if (is_missing or isinstance(value, str))
        and not _is_any_word(value)
        and _names(error_message(context.result_text, result.error_type), str(value))
    ]


def _is_about_arguments(context: ToolCallContext) -> bool:
    """Whether the tool itself says that the call failed, in whatever words, and by no mistake of its own program."""
    result = context.result
    if result is None or result.evidence not in _MARKED or runs_code(context.call):
        return False
    return _PROGRAM_MISTAKE.search(result.error_type.rpartition(".")[2]) is None


_MARKED: Final = frozenset({"span status", "is_error"})
_PROGRAM_MISTAKE: Final = re.compile(
    r"(?:Type|Attribute|Name|Reference|ZeroDivision|Arithmetic|Assertion|NotImplemented|Import|ModuleNotFound|Syntax"
    r"|Indentation|Recursion|UnboundLocal|NullPointer|NullReference|ClassCast|StopIteration|Memory|OutOfMemory|Panic)"
    r"(?:Error|Exception)?$"
)
"""Exceptions that show a mistake in a tool's program, whatever value it was working on."""


def names_value(context: ToolCallContext) -> bool:
    """Whether the error names an identifier among the call's arguments: it speaks of what was asked for."""
    if context.result is None or not context.call.is_valid:
        return False
    message = error_message(context.result_text, context.result.error_type)
    values = (str(value) for _, value in _values(context.call.arguments))
    return any(_IDENTIFIER.fullmatch(value.strip()) and _names(message, value) for value in values)


def _is_any_word(value: object) -> bool:
    """Whether a value is so short a word ("no") that an error holds it by chance."""
    return isinstance(value, str) and value.isalpha() and len(value) < _SHORTEST


_SHORTEST: Final = 3


def _of_sort(context: ToolCallContext) -> list[tuple[str, str | int | float]]:
    """(argument, value) of those arguments whose name is of the sort of thing that an error says is not there."""
    result, span = context.result, context.step.span
    if result is None or not result.is_error or not context.call.is_valid or not span.input or span.problem is not None:
        return []
    message = error_message(context.result_text, result.error_type)
    match = _SORT_MISSING.search(message[:_MOST_TEXT])
    if match is None:
        return []
    sort = {word.casefold().removesuffix("s") for word in _WORD.findall(match.group(1) or match.group(2))}
    return [
        (name, value)
        for name, value in _values(context.call.arguments)
        if isinstance(value, str)
        and not sort.isdisjoint(word.removesuffix("s") for word in _WORD.findall(name.casefold()))
    ]


def _values(arguments: str) -> Iterator[tuple[str, str | int | float]]:
    """(argument, text or number in it), of every argument, nested ones included."""
    given = cast("dict[str, object]", parse_json(arguments))
    waiting = [(name, value) for name, value in reversed(given.items())]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(name, inner) for inner in cast("dict[str, object]", value).values()]
        elif isinstance(value, list):
            waiting += [(name, inner) for inner in cast("list[object]", value)]
        elif isinstance(value, str | int | float) and not isinstance(value, bool):
            yield name, value


def _names(text: str, value: str) -> bool:
    stripped = value.strip()
    return bool(stripped) and _word(stripped).search(text) is not None


@lru_cache(maxsize=256)
def _word(value: str) -> re.Pattern[str]:
    return re.compile(rf"(?a:(?<!\w)){re.escape(value)}(?a:(?!\w))", re.IGNORECASE)


def _given(span: Span) -> str | None:
    """All text that the policy did not write itself; None when part of it cannot be read.

    What a tool's answer repeats of the arguments of its own call is the policy's text.
    """
    given = [message for message in span.input if message.role != "assistant"]
    if not all(_is_readable(message) for message in given):
        return None
    texts = [message.text for message in given]
    calls = {call.id: call for message in span.input for call in message.tool_calls if call.id and call.is_valid}
    for response in (response for message in given for response in message.tool_responses):
        call = calls.get(response.id)
        texts.append(_without_arguments(response.content, call.arguments) if call else response.content)
    return "\n".join([span.tools, *texts]).casefold()


def _without_arguments(content: str, arguments: str) -> str:
    """``content`` without the texts among ``arguments``."""
    for _, value in _values(arguments):
        if isinstance(value, str) and value.strip() and not _is_any_word(value):
            content = _word(value.strip()).sub(" ", content)
    return content


def _is_readable(message: Message) -> bool:
    parts = cast("dict[str, list[object]]", parse_json(message.json)).get("parts", [])
    kinds = [cast("dict[str, object]", part).get("type") if isinstance(part, dict) else "text" for part in parts]
    return _READABLE_PARTS.issuperset(kinds)
