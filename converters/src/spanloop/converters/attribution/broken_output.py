"""A model call that answered, but not to its end or in no form that can be read.

The stream broke, the limit cut it, a filter did, or a tool call came as plain text.
"""

import re
from typing import ClassVar, Final, cast

from spanloop.converters.enums import FaultOwner, UntrainableReason
from spanloop.messages import Message, parse_json

from ..reading.finish_reasons import CONTENT_FILTER, ERROR, LENGTH, MALFORMED_CALL, STOP
from ..steps import Step
from .base import ErrorClass, Finding, ModelCallRule
from .environment import was_stopped
from .failed_request import error_text


def is_incomplete(step: Step) -> bool:
    """Whether the answer broke off: a stream without a finish reason, one that says so, or a capture that saw it.

    Of a stream without any recorded answer nothing is known: instrumentors leave out the finish reason, too. A stream
    whose answer the next call was sent is whole.
    """
    span = step.span
    has_no_end = span.is_streaming and span.output and not span.finish_reason and not span.has_failed
    if span.finish_reason in {ERROR, MALFORMED_CALL} or (has_no_end and not step.is_continued):
        return True
    problem = step.capture.problem
    return problem is not None and problem.reason is UntrainableReason.INCOMPLETE_STREAM


def has_unrecorded_end(step: Step) -> bool:
    """Whether the model ended its answer by itself and nothing of the answer is recorded."""
    span = step.span
    return not span.output and span.finish_reason == STOP and not span.has_failed and not is_incomplete(step)


class IncompleteStream(ModelCallRule):
    """The answer broke off: a stream without a finish reason, or one that an error ended."""

    needs_sign: ClassVar[bool] = True

    def find(self, step: Step) -> Finding | None:
        """Return the finding; None without one."""
        if (not is_incomplete(step) and not _broke_off(step)) or step.span.finish_reason == MALFORMED_CALL:
            return None
        text = step.span.output[0].text if step.span.output else ""
        # Without an error, the service may have broken off, and the app may have stopped reading.
        has_error = step.span.finish_reason == ERROR or _broke_off(step)
        return Finding(
            ErrorClass.INCOMPLETE_STREAM,
            FaultOwner.ENVIRONMENT if has_error else FaultOwner.UNKNOWN,
            0.9 if has_error else 0.5,
            "the stream broke off before a finish reason" if has_error else "the stream has no finish reason",
            {"finish_reason": step.span.finish_reason, "text_so_far": text[-200:]},
        )


def _broke_off(step: Step) -> bool:
    """Whether an error ended a stream that had brought something, and nobody had stopped it."""
    span = step.span
    has_begun = span.is_streaming and span.has_failed and bool(span.output) and has_parts(span.output[0])
    return has_begun and not was_stopped(error_text(span))


class TruncatedOutput(ModelCallRule):
    """The answer was cut at its token limit."""

    needs_sign: ClassVar[bool] = True

    def find(self, step: Step) -> Finding | None:
        """Return the finding; None without one."""
        if step.span.finish_reason != LENGTH:
            return None
        limit = dict(step.span.sampling).get("max_tokens", "")
        evidence: dict[str, object] = {
            "finish_reason": LENGTH,
            "max_tokens": limit,
            "output_tokens": str(step.span.output_tokens),
        }
        return Finding(ErrorClass.TRUNCATED_OUTPUT, FaultOwner.POLICY, 0.6, "the output hit its token limit", evidence)


class FilteredOutput(ModelCallRule):
    """A content filter cut the answer."""

    needs_sign: ClassVar[bool] = True

    def find(self, step: Step) -> Finding | None:
        """Return the finding; None without one."""
        if step.span.finish_reason != CONTENT_FILTER:
            return None
        evidence: dict[str, object] = {"finish_reason": CONTENT_FILTER}
        return Finding(ErrorClass.CONTENT_FILTER, FaultOwner.POLICY, 0.5, "a content filter cut the output", evidence)


_TAGGED_CALL: Final = re.compile(
    r"<\|?(?:tool_call|tool_calls|function_call|function_calls|tool_use|python_tag|invoke|tool_calls?_(?:section_)?begin)\b"
    r"|<function=|\[TOOL_CALLS?\]"
)
"""A tool call as models write one that their parser did not take."""

_JSON_CALL: Final = re.compile(
    r"\s*(?:```(?:json|tool_call|tool_code)?\s*)?\{\s*\"(?:name|tool|function|tool_name)\"\s*:"
    r"\s*\"[\w.-]+\"\s*,\s*\"(?:arguments|parameters|args|input|tool_input)\"\s*:"
)
"""Such a call without a tag, with which an answer begins."""

_CALL_BY_NAME: Final = re.compile(
    r"(?:^|\n)\s*Action:\s*[`'\"]?([\w.-]+)|\bto=functions\.([\w-]+)|\b(?:functions|default_api)\.([\w-]+)\("
    r"|[{,]\s*\"(?:name|tool|function|tool_name)\"\s*:\s*\"([\w.-]+)\"\s*,\s*"
    r"\"(?:arguments|parameters|args|input|tool_input)\"\s*:"
)
"""Text that is a tool call only where it names an offered tool."""


def _call_as_text(text: str) -> re.Match[str] | None:
    return _JSON_CALL.match(text) or _TAGGED_CALL.search(text)


def _call_by_name(text: str, tools: str) -> re.Match[str] | None:
    if tools == "[]" or not any(hint in text for hint in _NAME_HINTS):
        return None
    calls = (match for match in _CALL_BY_NAME.finditer(text) if f'"{match[match.lastindex or 0]}"' in tools)
    return next(calls, None)


_NAME_HINTS: Final = ("Action:", "functions.", "default_api.", '"name"', '"tool', '"function"')
"""One of these is in every match of ``_CALL_BY_NAME``, which is slow to look for."""


class MalformedOutput(ModelCallRule):
    """The answer holds a tool call as plain text, or neither text nor a call."""

    needs_sign: ClassVar[bool] = True

    def find(self, step: Step) -> Finding | None:
        """Return the finding; None without one."""
        span = step.span
        if span.finish_reason == MALFORMED_CALL:
            message = "the service could not read the tool call"
            evidence: dict[str, object] = {"finish_reason": span.finish_reason}
            return Finding(ErrorClass.MALFORMED_OUTPUT, FaultOwner.POLICY, 0.8, message, evidence)
        if span.problem is not None or not span.output or span.output[0].tool_calls:
            return None
        output = span.output[0]
        evidence = {"finish_reason": span.finish_reason, "output": output.text[:500]}
        if match := _call_as_text(output.text) or _call_by_name(output.text, span.tools):
            evidence["found"] = match.group(0)
            message = "the output holds a tool call as plain text"
            confidence = 0.9 if span.tools != "[]" else 0.6
            return Finding(ErrorClass.MALFORMED_OUTPUT, FaultOwner.POLICY, confidence, message, evidence)
        if not has_parts(output):
            message = "the output holds neither text nor a tool call"
            return Finding(ErrorClass.MALFORMED_OUTPUT, FaultOwner.POLICY, 0.7, message, evidence)
        return None


def has_parts(message: Message) -> bool:
    """Whether a message says anything: text, a tool call, or a part of another kind."""
    if message.text.strip() or message.tool_calls or message.tool_responses:
        return True
    fields = cast("dict[str, list[object]]", parse_json(message.json))
    kinds = [cast("dict[str, object]", part).get("type") for part in fields.get("parts", []) if isinstance(part, dict)]
    return any(kind not in {"text", "reasoning"} for kind in kinds)
