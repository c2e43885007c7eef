"""A failed episode in which a tool answered and the next request did not hold the answer: whoever sends it lost it.

The tool's span has the result, and the request repeats the call itself, so its history was recorded. The request holds
no answer at all, or an empty one.
"""

from typing import ClassVar

from spanloop.converters.enums import FaultOwner

from ...spans import SpanKind
from ...steps import Episode, Step
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding


class UnseenResult(EndingRule):
    """A tool answered, and the next request does not hold its answer."""

    is_event: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        for step in reversed(episode.steps):
            position = _unseen(step, episode)
            if position is None:
                continue
            result = next(result for result in step.results if result.position == position)
            evidence: dict[str, object] = {"reward": repr(reward), "result": result.content[:500]}
            message = f"the answer of {result.name!r} is not part of the next request"
            finding = Finding(ErrorClass.MISSING_RESULT, FaultOwner.HARNESS, 0.5, message, evidence)
            return LocatedFinding(step, finding, step.span, result.name)
        return None


def _unseen(step: Step, episode: Episode) -> int | None:
    """Position of a call whose result only the tool's span holds; None without one."""
    if step.continuation is None or not step.is_continued or not step.results:
        return None
    news = step.continuation.new_messages
    recorded = {span.key: span.tool_result.strip() for span in episode.context if span.kind is SpanKind.TOOL}
    responses = "\n".join(response.content for message in news for response in message.tool_responses).strip()
    shown = "\n".join([responses, *(message.text for message in news[1:])])
    for result in step.results:
        text = recorded.get((result.trace_id, result.span_id), "")
        if text and not result.is_error and not responses and text not in shown:
            return result.position
    return None
