"""Failures of an episode: what went wrong, whose fault it was, and whether the episode got over it.

Invariant: one failure at most for each model call and for each tool call, by the first rule of the registry that
sees one; what no single call shows is added by the rules that look at the episode. Only what decided the episode is
unrecovered.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, cast

from spanloop.semconv.enums import FaultOwner

from ..finish_reasons import LENGTH
from ..messages import parse_json
from ..spans import Span, SpanKind
from ..steps import Episode, Step
from .bad_call import MALFORMED_ARGUMENTS, REFUSED_ARGUMENTS, UNKNOWN_TOOL
from .base import EndingRule, EpisodeRule, ErrorClass, Finding, ModelCallRule, Rules, Sighting, ToolCallRule, ToolScene
from .broken_output import FILTERED_OUTPUT, INCOMPLETE_STREAM, MALFORMED_OUTPUT, TRUNCATED_OUTPUT, is_incomplete
from .causes import deciding_chain, decisive, with_chains
from .circling import CIRCLING
from .corrected import CORRECTED
from .course import Course, course_of, made_progress
from .crash import CRASH
from .echo import in_words_from_above, without_echoes
from .ending import DECLINED, STOPPED, WRONG_ANSWER
from .failed_request import FAILED_REQUEST
from .failure import Failure
from .invented import INVENTED_DATA
from .judge import Ask, AskedJudge, judged_ending
from .loop import LOOP
from .made_up import MADE_UP, WRONGLY_GIVEN
from .poor_result import POOR_RESULT
from .team import TEAM_ANSWER
from .tool_failure import BROKEN_CODE, CANNOT_BE, TOOL_ENVIRONMENT, TOOL_RAISED, UNANSWERED

RULES: Final = Rules(
    model_calls=(INCOMPLETE_STREAM, FAILED_REQUEST, TRUNCATED_OUTPUT, FILTERED_OUTPUT, MALFORMED_OUTPUT),
    tool_calls=(
        UNKNOWN_TOOL,
        MALFORMED_ARGUMENTS,
        REFUSED_ARGUMENTS,
        TOOL_ENVIRONMENT,
        MADE_UP,
        WRONGLY_GIVEN,
        BROKEN_CODE,
        CANNOT_BE,
        CORRECTED,
        TOOL_RAISED,
        UNANSWERED,
    ),
    episodes=(LOOP, CRASH),
    endings=(CIRCLING, STOPPED, DECLINED, POOR_RESULT, INVENTED_DATA, TEAM_ANSWER, WRONG_ANSWER),
)
"""In order of precedence. A rule of your own: ``RULES._replace(tool_calls=(MINE, *RULES.tool_calls))``."""


VALUE_RULES: Final = frozenset({MADE_UP.name, CORRECTED.name})
"""Rules of arguments that have the right form and the wrong content."""


def attribute(episode: Episode, *, has_failed: bool, reward: float | None, rules: Rules = RULES) -> tuple[Failure, ...]:
    """The failures of ``episode`` in the order of its steps.

    Args:
        episode: Its steps and spans.
        has_failed: Whether the reward says that the episode failed.
        reward: The episode's reward, for the evidence.
        rules: What is looked for.
    """
    course = course_of(episode, has_failed=has_failed)
    tools = {span.key: span for span in episode.context if span.kind is SpanKind.TOOL}
    found: list[Failure] = []
    of_tools: dict[tuple[str, str], Failure] = {}
    for step in episode.steps:
        found += _of_call(step, course, rules)
        for scene in _scenes(step, episode, tools, course):
            for failure in _of_tool(scene, course, rules):
                found.append(failure)
                of_tools |= {scene.tool.key: failure} if scene.tool is not None else {}
    found = in_words_from_above(without_echoes(found, of_tools, episode), episode)
    found += _of_episode(episode, course, rules, {(*failure.culprit, failure.finding.error_class) for failure in found})
    found.sort(key=lambda failure: failure.step.index)
    if has_failed:
        found += _of_ending(episode, reward, rules, found)
        found.sort(key=lambda failure: failure.step.index)
    return with_chains(episode, found, reward)


def _of_call(step: Step, course: Course, rules: Rules) -> Iterator[Failure]:
    for rule in rules.model_calls:
        finding = rule.see(step)
        if finding is not None:
            yield _failure(step, rule.name, finding, is_recovered=course.got_over_call(step, finding))
            return


def _scenes(step: Step, episode: Episode, tools: Mapping[tuple[str, str], Span], course: Course) -> Iterator[ToolScene]:
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if not calls or step.span.has_failed or is_incomplete(step):
        return
    results = {result.position: result for result in step.results}
    offered = offered_tools(step.span.tools)
    for position, call in enumerate(calls):
        if not call.is_valid and step.span.finish_reason == LENGTH:
            continue  # what cut the answer cut the arguments
        result = results.get(position)
        tool = tools.get((result.trace_id, result.span_id)) if result else None
        is_error = result is not None and result.is_error
        put_right = course.put_right(step, call.name, call.arguments) if is_error else ""
        is_continued = result is None and _is_continued(step, episode)
        yield ToolScene(step, call, result, tool, offered, is_continued, put_right)


def _of_tool(scene: ToolScene, course: Course, rules: Rules) -> Iterator[Failure]:
    for rule in rules.tool_calls:
        finding = rule.see(scene)
        if finding is not None:
            is_known = not scene.offered or scene.call.name in scene.offered
            recovered = course.got_over_tool(scene.step, scene.call.name, finding, is_known=is_known)
            yield _failure(scene.step, rule.name, finding, is_recovered=recovered, scene=scene)
            return


def _is_continued(step: Step, episode: Episode) -> bool:
    if step.following is None:
        return False
    call, after = step.span, episode.steps[step.following].span
    count = len(call.input)
    if not count or len(after.input) <= count or after.input_chain[count - 1] != call.input_chain[-1]:
        return False
    return after.input[count].digest == call.output[0].digest


def _of_episode(
    episode: Episode, course: Course, rules: Rules, known: AbstractSet[tuple[str, str, str]]
) -> Iterator[Failure]:
    """What the episode's rules see but what a call's rule has told of the same span: (trace, span, class) are known."""
    newest_ns = max(step.span.start_ns for step in episode.steps)
    seen = [(rule.name, sighting) for rule in rules.episodes for sighting in rule.see(episode)]
    is_of_tools = any(sighting.culprit.kind is SpanKind.TOOL for _, sighting in seen)
    worked_ns = _last_worked(episode) if is_of_tools else {}
    for rule, sighting in seen:
        culprit = sighting.culprit
        if (*culprit.key, sighting.finding.error_class) in known:
            continue
        went_on = newest_ns >= culprit.end_ns and course.went_on(sighting.step)
        is_broken = culprit.kind is SpanKind.TOOL and worked_ns.get(culprit.tool_name, -1) < culprit.end_ns
        is_lasting = is_broken or sighting.finding.owner is FaultOwner.POLICY
        recovered = went_on and not (course.has_failed and is_lasting)
        yield _sighted(sighting, rule, is_recovered=recovered)


def _last_worked(episode: Episode) -> dict[str, int]:
    """Tool → when its last call began that worked."""
    found: dict[str, int] = {}
    for span in episode.context:
        if span.kind is SpanKind.TOOL and not span.has_failed:
            found[span.tool_name] = max(span.start_ns, found.get(span.tool_name, -1))
    return found


def _of_ending(episode: Episode, reward: float | None, rules: Rules, found: Sequence[Failure]) -> list[Failure]:
    """What the first ending rule sees of those that are asked; what came before an open failure explains nothing."""
    known = {failure.finding.error_class for failure in found if not failure.is_recovered}
    since = max((_step_of_fault(failure) for failure in found if not failure.is_recovered), default=-1)
    had_worked = any(step.results and made_progress(step) for step in episode.steps[since + 1 :])
    for rule in rules.endings:
        if known and not (rule.is_choice or (rule.is_event and had_worked)):
            continue
        sighting = rule.see(episode, reward)
        if sighting is None or sighting.finding.error_class in known or sighting.step.index < since:
            continue
        return [_sighted(sighting, rule.name, is_recovered=False)]
    return []


def _step_of_fault(failure: Failure) -> int:
    """That turns ran out is no fault that came after others: what used them up is looked for all the same."""
    return -1 if failure.finding.error_class == ErrorClass.STEP_LIMIT else failure.step.index


def _sighted(sighting: Sighting, rule: str, *, is_recovered: bool) -> Failure:
    return Failure(
        step=sighting.step,
        trace_id=sighting.culprit.trace_id,
        span_id=sighting.culprit.span_id,
        tool_name=sighting.tool_name,
        rule=rule,
        finding=sighting.finding,
        is_recovered=is_recovered,
        occurred_ns=sighting.culprit.end_ns,
    )


def _failure(step: Step, rule: str, finding: Finding, *, is_recovered: bool, scene: ToolScene | None = None) -> Failure:
    result = scene.result if scene else None
    in_tool = result is not None and bool(result.span_id) and finding.owner is not FaultOwner.POLICY
    return Failure(
        step=step,
        trace_id=result.trace_id if result and in_tool else step.span.trace_id,
        span_id=result.span_id if result and in_tool else step.span.span_id,
        tool_name=scene.call.name if scene else "",
        rule=rule,
        finding=finding,
        is_recovered=is_recovered,
        occurred_ns=step.span.end_ns,
    )


@lru_cache(maxsize=256)
def offered_tools(tools: str) -> dict[str, dict[str, object]]:
    """Tool name → JSON schema of its parameters, out of a canonical list of tool definitions."""
    definitions = cast("list[dict[str, object]]", parse_json(tools))
    found: dict[str, dict[str, object]] = {}
    for definition in definitions:
        parameters = definition.get("parameters")
        if isinstance(definition.get("name"), str):
            schema = cast("dict[str, object]", parameters) if isinstance(parameters, dict) else {}
            found[str(definition["name"])] = schema
    return found


__all__ = [
    "RULES",
    "VALUE_RULES",
    "Ask",
    "AskedJudge",
    "EndingRule",
    "EpisodeRule",
    "ErrorClass",
    "Failure",
    "Finding",
    "ModelCallRule",
    "Rules",
    "Sighting",
    "ToolCallRule",
    "ToolScene",
    "attribute",
    "deciding_chain",
    "decisive",
    "is_incomplete",
    "judged_ending",
    "offered_tools",
]
