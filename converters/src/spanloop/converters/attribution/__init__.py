"""Failures of an episode: what went wrong, whose fault it was, and whether the episode got over it.

Invariant: one failure at most for each model call and for each tool call, by the first rule of the registry that
sees one. Only what decided the episode is unrecovered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, cast

from spanloop.semconv.enums import FaultOwner

from ..messages import parse_json
from ..steps import Episode, Step
from .bad_call import MALFORMED_ARGUMENTS, REFUSED_ARGUMENTS, UNKNOWN_TOOL
from .base import ErrorClass, Finding, ToolScene
from .broken_output import FILTERED_OUTPUT, INCOMPLETE_STREAM, TRUNCATED_OUTPUT, is_incomplete
from .ending import WRONG_ANSWER
from .failed_request import FAILED_REQUEST
from .made_up import MADE_UP
from .tool_failure import TOOL_ENVIRONMENT, TOOL_RAISED

MODEL_CALL_RULES: Final = (FAILED_REQUEST, INCOMPLETE_STREAM, TRUNCATED_OUTPUT, FILTERED_OUTPUT)
TOOL_CALL_RULES: Final = (UNKNOWN_TOOL, MALFORMED_ARGUMENTS, REFUSED_ARGUMENTS, TOOL_ENVIRONMENT, MADE_UP, TOOL_RAISED)
ENDING_RULES: Final = (WRONG_ANSWER,)


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that went wrong in an episode."""

    step: Step
    trace_id: str
    span_id: str
    """The culprit: the model call when the policy is to blame, else the span that failed."""
    tool_name: str
    rule: str
    finding: Finding
    is_recovered: bool
    occurred_ns: int

    @property
    def fingerprint(self) -> str:
        """The same for the same failure in any episode: numbers, ids and quoted values do not count."""
        shape = _VALUES.sub("#", self.finding.message[:400])
        text = f"{self.finding.error_class}\0{self.finding.owner}\0{self.tool_name}\0{self.rule}\0{shape}"
        return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


_VALUES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\b[0-9a-fA-F]{8,}\b|\b[A-Z]*-?\d[\w.:-]*")


class _Course(NamedTuple):
    """How the episode went, as far as recovery is concerned."""

    last_index: int
    ended_well: bool
    """Whether the last call came to an answer."""
    has_failed: bool
    last_success: dict[str, int]
    """Tool name → the last step at which it worked."""


def attribute(episode: Episode, *, has_failed: bool, reward: float | None) -> tuple[Failure, ...]:
    """The failures of ``episode`` in the order of its steps.

    Args:
        episode: Its steps and spans.
        has_failed: Whether the reward says that the episode failed.
        reward: The episode's reward, for the evidence.
    """
    course = _course(episode, has_failed=has_failed)
    found = [failure for step in episode.steps for failure in (*_of_call(step, course), *_of_tools(step, course))]
    if has_failed and all(failure.is_recovered for failure in found):
        last = episode.steps[-1]
        for rule in ENDING_RULES:
            finding = rule.see(episode, reward)
            if finding is not None:
                found.append(_failure(last, rule.name, finding, is_recovered=False))
                break
    return tuple(found)


def _course(episode: Episode, *, has_failed: bool) -> _Course:
    last = episode.steps[-1]
    worked = {result.name: step.index for step in episode.steps for result in step.results if not result.is_error}
    ended_well = not last.span.has_failed and not is_incomplete(last) and bool(last.span.output)
    return _Course(last.index, ended_well, has_failed, worked)


def decisive(failures: tuple[Failure, ...]) -> Failure | None:
    """The failure that decided the episode: the first that it did not get over."""
    return next((failure for failure in failures if not failure.is_recovered), None)


def _of_call(step: Step, course: _Course) -> Iterator[Failure]:
    for rule in MODEL_CALL_RULES:
        finding = rule.see(step)
        if finding is not None:
            recovered = _went_on(step, course) and not course.has_failed
            yield _failure(step, rule.name, finding, is_recovered=recovered)
            return


def _of_tools(step: Step, course: _Course) -> Iterator[Failure]:
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if not calls or step.span.has_failed or is_incomplete(step):
        return
    results = {result.position: result for result in step.results}
    offered = offered_tools(step.span.tools)
    for position, call in enumerate(calls):
        scene = ToolScene(step, call, results.get(position), offered)
        for rule in TOOL_CALL_RULES:
            finding = rule.see(scene)
            if finding is not None:
                worked_later = course.last_success.get(call.name, -1) > step.index
                recovered = _went_on(step, course) and (not course.has_failed or worked_later)
                yield _failure(step, rule.name, finding, is_recovered=recovered, scene=scene)
                break


def _went_on(step: Step, course: _Course) -> bool:
    """Whether the episode took a later step and came to an answer."""
    return course.last_index > step.index and course.ended_well


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


__all__ = ["ErrorClass", "Failure", "Finding", "attribute", "decisive", "is_incomplete", "offered_tools"]
