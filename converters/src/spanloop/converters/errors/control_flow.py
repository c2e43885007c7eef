"""Exceptions that steer a program, and that tracers record as errors: a pause, a hand-over, an iterator's end.

Invariant: such an exception is no failure of the span that raised it. A tool that paused or handed over has no result
yet: the run that answers later gives it. A cancelled run is no failure where its agent had already answered.
"""

import re
from typing import Final, NamedTuple

from msgspec.structs import replace

from ..linking import Group
from ..reading.finish_reasons import LENGTH
from ..spans import ExceptionInfo, Span, SpanKind

_SUFFIX: Final = r"(?:Signal|Exception|Error)?"
_PERSON: Final = r"(?:Human|User|Person|Operator|Tool)?"
_ANSWER: Final = r"(?:Approval|Confirmation|Review|Feedback|Input)"
_PAUSE: Final = re.compile(
    rf"(?!Keyboard)\w*(?:Interrupt|BubbleUp|Deferred|Suspend(?:ed|Execution)?|Paused?|Breakpoint){_SUFFIX}"
    rf"|Deferred\w+|\w*(?:Approval|Confirmation|(?:Human|User|Person|Operator)(?:Review|Feedback|Input))"
    rf"(?:Required|Requested|Needed|Pending){_SUFFIX}"
    rf"|(?:Require|Need|Await|Pending|Wait(?:ing)?For)(?:s|ing)?{_PERSON}{_ANSWER}{_SUFFIX}"
)
"""Waits for a person or for a job that answers later."""
_HAND_OVER: Final = re.compile(
    r"ParentCommand|\w*Hand(?:[Oo]ff|[Oo]ver)(?:Signal|Exception|Request(?:ed)?)?"
    r"|(?:Agent)?Transfer(?:To\w+|Signal|Request(?:ed)?)"
)
_ITERATION_END: Final = re.compile(
    r"Stop(?:Async)?Iteration|Stop(?:Agent)?Run|AgentFinish(?:ed)?|EndOf(?:Stream|Iteration)"
)
_PROGRAM_END: Final = re.compile(r"(?:System)?Exit")
_SUCCESS_CODES: Final = frozenset({"", "0", "None"})
_CLOSED: Final = re.compile(r"GeneratorExit")
_TEARDOWN: Final = re.compile(r"GeneratorExit|Cancel(?:l?ed|lation)(?:Error|Exception)?")
"""Raised into a run that its caller no longer waits for; of a run that has answered nothing is lost."""

_CLASS_NAME: Final = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::|/|\$))*([A-Za-z_]\w*)\s*(?:$|[:(])\s*(.*)", re.DOTALL)
_NO_EXCEPTION: Final = ExceptionInfo("", "")


class _Raised(NamedTuple):
    """Class name, without its module, and message of what a span raised."""

    name: str
    message: str


def without_control_flow(group: Group) -> Group:
    """Return ``group`` without the errors of control flow; a tool that waits is no call of a tool any more."""
    if not [span for spans in (group.calls, group.context) for span in spans if span.is_error or span.error_type]:
        return group
    answer = _last_answer(group)
    return group._replace(
        calls=[_finished(span) if span.has_failed else span for span in group.calls],
        context=[_resolved(span, answer) if span.has_failed else span for span in group.context],
    )


def _finished(call: Span) -> Span:
    """A model call that gave its whole answer before the iteration over it ended."""
    is_whole = bool(call.output) and bool(call.finish_reason)
    return _without_error(call) if is_whole and _matches(call, _ITERATION_END, _CLOSED) else call


def _resolved(span: Span, answer: Span | None) -> Span:
    if _matches(span, _PAUSE, _HAND_OVER):
        return replace(_without_error(span), kind=SpanKind.OTHER if span.kind is SpanKind.TOOL else span.kind)
    if _is_success_exit(span):
        return _without_error(span)
    if span.kind is SpanKind.TOOL:  # an iterator that ends within a tool is the tool's own mistake
        return span
    has_answered = answer is not None and span.start_ns <= answer.end_ns
    is_end = _matches(span, _ITERATION_END) or (has_answered and _matches(span, _TEARDOWN))
    return _without_error(span) if is_end else span


def _last_answer(group: Group) -> Span | None:
    """The newest model call where it ended in words: nothing was left to do."""
    last = max(group.calls, key=lambda call: call.start_ns, default=None)
    if last is None or last.has_failed or not last.output or last.finish_reason == LENGTH:
        return None
    return None if last.output[0].tool_calls else last


def _matches(span: Span, *patterns: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(raised.name) for raised in _raised(span) for pattern in patterns)


def _is_success_exit(span: Span) -> bool:
    return any(_PROGRAM_END.fullmatch(raised.name) and raised.message in _SUCCESS_CODES for raised in _raised(span))


def _raised(span: Span) -> list[_Raised]:
    """Return what a span raised, by its exception, its ``error.type`` and the beginning of its status."""
    texts = (f"{span.exception.type}: {span.exception.message}" if span.exception.type else "", span.status_message)
    matches = [_CLASS_NAME.match(text) for text in (*texts, "" if span.exception.type else span.error_type) if text]
    return [_Raised(match[1], match[2].strip()) for match in matches if match]


def _without_error(span: Span) -> Span:
    return replace(span, is_error=False, error_type="", status_message="", exception=_NO_EXCEPTION)
