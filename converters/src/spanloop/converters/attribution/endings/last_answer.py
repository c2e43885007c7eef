"""An episode that failed although nothing in it did: what its last answer shows, as far as the reward can tell.

A reward says that the answer is wrong and not where it went wrong: the last step of the policy is named, at a
confidence that says so.
"""

import re
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final

from spanloop.converters.enums import FaultOwner

from ...errors.error_texts import inner_text
from ...errors.failure_patterns import failure_pattern
from ...steps import Episode, Step
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding
from ..environment import environment_fault
from ..tool_calls.tool_kinds import does_something, ends
from .answer import is_farewell, origin_of_answer

_DECLINED: Final = failure_pattern("declined")
_APOLOGY: Final = failure_pattern("apology")
_DECLINES_WITHIN: Final = 300
"""Characters from the start of an answer within which a refusal, or a report of a failure, is said."""


class StoppedInAction(EndingRule):
    """The episode stopped after a tool call, before an answer."""

    is_event: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """The last action is a tool call, nobody asked for an answer, and the tool is none that ends things."""
        last = episode.steps[-1]
        calls = last.span.output[0].tool_calls if last.span.output else ()
        answered = {result.position for result in last.results}
        if not calls or any(ends(call.name, is_answered=position in answered) for position, call in enumerate(calls)):
            return None
        evidence: dict[str, object] = {
            "reward": repr(reward),
            "steps": len(episode.steps),
            "calls": [call.name for call in calls],
            "answered": len(last.results),
        }
        message = "the episode stopped after a tool call, before an answer"
        return LocatedFinding(
            last, Finding(ErrorClass.STEP_LIMIT, FaultOwner.POLICY, 0.4, message, evidence), last.span
        )


class UnseenAnswer(EndingRule):
    """The last answer is a stream of which neither an answer nor an end is recorded: nobody knows what came of it."""

    is_event: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        last = episode.steps[-1]
        span = last.span
        if not span.is_streaming or span.output or span.finish_reason or span.has_failed:
            return None
        evidence: dict[str, object] = {"reward": repr(reward), "output_tokens": str(span.output_tokens)}
        message = "the last stream has neither an answer nor a finish reason"
        finding = Finding(ErrorClass.INCOMPLETE_STREAM, FaultOwner.UNKNOWN, 0.4, message, evidence)
        return LocatedFinding(last, finding, span)


class Declined(EndingRule):
    """The policy declined to do the task."""

    is_event: ClassVar[bool] = True

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        last = episode.steps[-1]
        text = last.span.output[0].text if last.span.output else ""
        match = _DECLINED.search(text[:_DECLINES_WITHIN].replace("\u2019", "'"))
        if match is None:
            return None
        evidence: dict[str, object] = {"reward": repr(reward), "said": match.group(0), "answer": text[:500]}
        message = "the policy declined to do the task"
        return LocatedFinding(last, Finding(ErrorClass.REFUSAL, FaultOwner.POLICY, 0.7, message, evidence), last.span)


class ReportedFailure(EndingRule):
    """The last answer tells of a failure that nothing else recorded."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """The last answer apologises for an outage, or passes on a tool's remark: the words show no culprit."""
        last = episode.steps[-1]
        answer = last.span.output[0].text[:_DECLINES_WITHIN].replace("\u2019", "'") if last.span.output else ""
        results = [result for step in episode.steps for result in step.results]
        if not results or not answer:
            return None
        is_apology = _APOLOGY.search(answer) is not None
        remark = inner_text(results[-1].content)
        error_class = environment_fault(answer) if is_apology else None
        if error_class is None and _is_passed_on(remark, answer, _given_figures(episode), is_apology=is_apology):
            error_class = ErrorClass.TOOL_ERROR
        if error_class is None:
            return None
        evidence: dict[str, object] = {"reward": repr(reward), "answer": answer, "result": results[-1].content[:500]}
        message = f"the answer reports a failure ({error_class}) that nothing else recorded"
        return LocatedFinding(last, Finding(error_class, FaultOwner.UNKNOWN, 0.35, message, evidence), last.span)


def _is_passed_on(remark: str, answer: str, given: AbstractSet[str], *, is_apology: bool) -> bool:
    """Whether an answer only passes on a short remark of a tool, words about the call instead of data.

    The answer apologises and the remark has no figures of its own; or both are negative, or a question follows a
    negative remark, and the answer makes no figure up.

    Args:
        remark: The text of the newest tool result.
        answer: The beginning of the last answer.
        given: Figures of the task and of the actions.
        is_apology: Whether the answer apologises.
    """
    if not 0 < len(remark) <= _MOST_REMARK or "\n" in remark.strip() or remark[0] in "[<":
        return False
    figures = set(_FIGURE.findall(remark))
    if is_apology and remark[0] != "{" and figures <= given:
        return True
    is_reply = _NEGATION.search(answer) is not None or answer.rstrip().endswith(("?", "\uff1f"))
    return is_reply and _NEGATION.search(remark) is not None and set(_FIGURE.findall(answer)) <= given | figures


def _given_figures(episode: Episode) -> frozenset[str]:
    """Words with digits of the task and of the actions: a tool that repeats them brings nothing new."""
    texts = [message.text for message in episode.first_step.span.input]
    texts += [call.arguments for step in episode.steps for output in step.span.output[:1] for call in output.tool_calls]
    return frozenset(figure for text in texts for figure in _FIGURE.findall(text))


_MOST_REMARK: Final = 200
_FIGURE: Final = re.compile(r"[A-Za-z_-]*\d[\w-]*")
_NEGATION: Final = re.compile(
    r"\b(?:no|not|none|nobody|nothing|never|cannot|without|kein\w*|nicht\w*|nie|niemand|ohne|ning[uú]n\w*|nunca|nada|nadie"
    r"|sin|pas|aucun\w*|jamais|rien|sans|não|nenhum\w*|sem|не|нет|ничего|без)\b|n't\b|[不没沒无無未非]|ない|ません|なし",
    re.IGNORECASE,
)
"""Words of negation."""


class WrongAnswer(EndingRule):
    """The episode ended in order, and its reward says that it failed."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        if reward is None:
            return None
        last = episode.steps[-1]
        evidence: dict[str, object] = {"reward": repr(reward), "answer": _last_words(last)[:500]}
        message = f"the episode ended in order with reward {reward:g}"
        origin, confidence = origin_of_answer(episode), 0.5
        if _reports(last, episode) or (origin is None and is_farewell(_last_words(last))):
            last, evidence["chosen"] = _before_the_end(episode)
            confidence = 0.4
        elif origin is not None:
            last, evidence["value"] = origin
        return LocatedFinding(
            last, Finding(ErrorClass.WRONG_ANSWER, FaultOwner.POLICY, confidence, message, evidence), last.span
        )


_REPORT: Final = re.compile(
    r"\bsuccessfully\b|\b(?:has|have) (?:now |also |all |both )?been \w+|\bi(?:'ve| have) (?:just |now )?\w+ed\b"
    r"|\bis (?:now )?(?:booked|cancell?ed|confirmed|updated|complete|done)\b",
    re.IGNORECASE,
)


def _reports(last: Step, episode: Episode) -> bool:
    """Whether the last message reports what was done right before it: then the deed is nearer to the mistake."""
    before = episode.steps[last.previous] if last.previous is not None else None
    return before is not None and _did(before) and _REPORT.search(_last_words(last).replace("\u2019", "'")) is not None


def _did(step: Step) -> bool:
    """Whether a tool of the step did something, in order."""
    return any(not result.is_error and does_something(result.name) for result in step.results)


def _before_the_end(episode: Episode) -> tuple[Step, str]:
    """Guess the step that failed an episode that ended in a report or in courtesies; return it and the reason."""
    done = next((step for step in episode.steps if _did(step)), None)
    if done is not None:
        return done, "the first thing done"
    substantial = (step for step in reversed(episode.steps) if not is_farewell(_last_words(step)))
    return next(substantial, episode.steps[-1]), "the last that was said before taking leave"


def _last_words(last: Step) -> str:
    """Return the text of the last answer, or its tool calls where it has no text."""
    output = last.span.output[0] if last.span.output else None
    if output is None:
        return ""
    return output.text or ", ".join(f"{call.name}({call.arguments})" for call in output.tool_calls)
