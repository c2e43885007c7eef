"""Results of an action's tool calls, and whether each is an error.

Invariant: the tool's own span decides where it says that it failed; else the text that the model was shown, by the
rules of ``error_texts``, because some frameworks swallow a tool's exception and leave every span OK.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from spanloop.messages import ToolCall, dump, parse_json_or_none

from ..errors.error_texts import AnswerErrors, inner_text
from ..spans import Span


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """One tool call and its answer."""

    position: int
    """Position of the call among the action's: an id may be empty, or given twice."""
    tool_call_id: str
    name: str
    is_error: bool
    error_type: str
    """The exception or status that the result names; empty without an error."""
    content: str
    duration_ns: int
    """0 when no span measured it."""
    span_id: str
    """The tool's span; empty when only a message tells of the call."""
    trace_id: str
    confidence: float
    """Confidence of ``is_error``, 0 to 1."""
    evidence: str
    """Evidence of the error: ``span status``, ``is_error`` in the message, or the name of the text rule."""

    @property
    def words(self) -> str:
        """The text inside ``content``'s envelopes, with every character as itself: JSON may spell one by its number."""
        return _words(self.content)

    def marked_failed(self) -> "ToolResult":
        """As an error that the message itself says it is, whatever its text tells."""
        return replace(self, is_error=True, confidence=1.0, evidence=self.evidence or "is_error")

    def as_json(self) -> dict[str, object]:
        """The form that ``transitions.tool_results`` holds."""
        return {
            "tool_call_id": self.tool_call_id,
            "name": self.name,
            "status": "error" if self.is_error else "ok",
            "error_type": self.error_type,
            "content": self.content,
            "duration_ns": self.duration_ns,
            "span_id": self.span_id,
        }


@lru_cache(maxsize=16)  # one rule after the other reads them
def _words(content: str) -> str:
    text = inner_text(content)
    if "\\u" in text and text.lstrip().startswith(("{", "[")):
        decoded = parse_json_or_none(text)
        return text if decoded is None else dump(decoded)
    return text


class ShownAnswer(msgspec.Struct, frozen=True, gc=False):
    """An answer as the model was shown it in the next input."""

    id: str
    """Id of the tool call; empty where the message has none."""
    content: str
    is_error: bool = False
    """Whether the message marks it as an error."""


def tool_results(
    calls: Sequence[ToolCall],
    spans: Sequence[Span | None],
    answers: Sequence[ShownAnswer],
    observed: Sequence[ShownAnswer],
    answer_errors: AnswerErrors,
) -> tuple[ToolResult, ...]:
    """One result for each call that has a span or an answer; a call without either has none.

    Calls that share an id get the answers with that id in their order; an id that only one call has may be answered
    several times, and the last answer counts. Answers without an id belong to the other calls in their order.

    Args:
        calls: The action's tool calls.
        spans: The ``execute_tool`` span of each call, or None.
        answers: In the next input.
        observed: The answer of each call in the text of a user's message; empty without any. They count where no span
            tells of a result.
        answer_errors: Errors in the answers of the batch.
    """
    matched = _matched(calls, answers)
    results: list[ToolResult] = []
    for position, (call, span) in enumerate(zip(calls, spans, strict=True)):
        answer = matched[position]
        if answer is None and observed and (span is None or not (span.tool_result or span.has_failed)):
            answer = observed[position]
        if span is not None or answer is not None:
            results.append(_result(position, call, span, answer, answer_errors))
    return tuple(results)


def _matched(calls: Sequence[ToolCall], answers: Sequence[ShownAnswer]) -> Sequence[ShownAnswer | None]:
    """The answer of each call."""
    if len(calls) == len(answers) == 1:
        return answers if answers[0].id in {"", calls[0].id} else (None,)
    ids = [call.id for call in calls]
    if ids == [answer.id for answer in answers] and len({*ids, ""}) > len(ids):
        return answers
    by_id: dict[str, deque[ShownAnswer]] = defaultdict(deque)
    for answer in answers:
        by_id[answer.id].append(answer)
    without_id = by_id.pop("", deque[ShownAnswer]())
    counts = Counter(ids)
    matched: list[ShownAnswer | None] = []
    for call in calls:
        queue = by_id.get(call.id, without_id)
        is_last = queue is not without_id and counts[call.id] == 1
        matched.append((queue[-1] if is_last else queue.popleft()) if queue else None)
    return matched


def _result(
    position: int, call: ToolCall, span: Span | None, answer: ShownAnswer | None, answer_errors: AnswerErrors
) -> ToolResult:
    content = answer.content if answer is not None else (span.tool_result if span else "")
    error = answer_errors[content]
    if error is None and span is not None and span.tool_result not in {"", content}:
        error = answer_errors[span.tool_result]
    error_type, confidence, evidence = "", 1.0, ""
    if span is not None and span.has_failed:
        error_type = span.exception.type or span.error_type or (error.error_type if error else "")
        content = content or span.exception.message or span.status_message
        evidence = "span status"
    elif error is not None:
        error_type, confidence, evidence = error.error_type, error.confidence, error.rule
    place = (0, "", "") if span is None else (span.duration_ns, span.span_id, span.trace_id)
    result = ToolResult(position, call.id, call.name, bool(evidence), error_type, content, *place, confidence, evidence)
    return result.marked_failed() if answer is not None and answer.is_error else result
