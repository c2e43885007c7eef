"""Recovery of an episode from its failures.

Invariant: what the episode got over did not decide it. Without a reward that says otherwise, an episode that came
to an answer got over everything before. One that failed got over a fault only where the same thing worked later:
the tool, or (for a request that its service failed) the next request of the same conversation. In a team, code that
did not run and output that cannot be read are got over as soon as the work goes on: everybody saw it, and went on. An
action that a tool said cannot be done is got over when the policy told the user, who then said what to do next: nothing
had been changed, and what came of it came later.
"""

from bisect import bisect_right
from collections import defaultdict
from operator import itemgetter
from typing import Final

import msgspec

from spanloop.converters.enums import FaultOwner

from ..steps import Episode, Step, Thread
from .base import ErrorClass, Finding
from .broken_output import has_unrecorded_end, is_incomplete

_SEEN_BY_ALL: Final = frozenset({ErrorClass.INVALID_CODE, ErrorClass.MALFORMED_OUTPUT})


class RecoveryFacts(msgspec.Struct, frozen=True, gc=False):
    """The facts that recovery depends on."""

    last_index: int
    ended_well: bool
    """Whether the last call came to an answer."""
    has_failed: bool
    """Whether the reward says that the episode failed."""
    is_team: bool
    """Whether several agents acted."""
    tool_worked: dict[str, list[tuple[int, str]]]
    """Tool name → (step, arguments) of each call that worked."""
    worked_with: dict[tuple[str, str], int]
    """Tool name and arguments → the last step at which they worked."""
    any_tool_worked: dict[Thread, int]
    """Thread → the last step at which every tool call worked."""
    answered: dict[Thread, int]
    """Thread → the last step that gave a whole answer."""
    replied_to: dict[Thread, int]
    """Thread → the last step that was words to somebody who then said something."""

    def recovered_call(self, step: Step, finding: Finding) -> bool:
        """Whether the episode got over what was wrong with a model call."""
        if not self.has_failed or (self.is_team and finding.error_class in _SEEN_BY_ALL):
            return self.went_on(step)
        is_policys = finding.owner is FaultOwner.POLICY
        return not is_policys and self.answered.get(step.thread, -1) > step.index

    def recovered_tool(self, step: Step, tool_name: str, finding: Finding, *, is_known: bool) -> bool:
        """Whether the episode got over a failed tool call; for a tool that does not exist, another one has to work."""
        if self.is_team and finding.error_class in _SEEN_BY_ALL:
            return self.went_on(step)
        if finding.error_class == ErrorClass.REFUSED_ACTION and self.replied_to.get(step.thread, -1) > step.index:
            return self.went_on(step)
        tool_worked = self.tool_worked.get(tool_name, [(-1, "")])[-1][0]
        worked = tool_worked if is_known else self.any_tool_worked.get(step.thread, -1)
        return self.went_on(step) and (not self.has_failed or worked > step.index)

    def corrected_arguments(self, step: Step, tool_name: str, arguments: str) -> str:
        """The arguments with which a tool worked next after ``step``; empty where ``arguments`` did so too."""
        if self.worked_with.get((tool_name, arguments), -1) > step.index:
            return ""
        worked = self.tool_worked.get(tool_name, [])
        after = bisect_right(worked, step.index, key=itemgetter(0))
        return worked[after][1] if after < len(worked) else ""

    def went_on(self, step: Step) -> bool:
        """Whether the episode took a later step and came to an answer."""
        return self.last_index > step.index and self.ended_well


def recovery_facts(episode: Episode, *, has_failed: bool) -> RecoveryFacts:
    """The recovery of ``episode``."""
    last = episode.steps[-1]
    ended_well = has_answered(last) or has_unrecorded_end(last)
    tool_worked: dict[str, list[tuple[int, str]]] = defaultdict(list)
    worked_with: dict[tuple[str, str], int] = {}
    any_tool_worked: dict[Thread, int] = {}
    answered: dict[Thread, int] = {}
    replied_to: dict[Thread, int] = {}
    for step in episode.steps:
        if has_unrecorded_end(step):
            answered[step.thread] = step.index
        elif has_answered(step):
            answered[step.thread] = step.index
            if has_failed and _was_replied_to(step, episode):
                replied_to[step.thread] = step.index
        for result in step.results:
            if not result.is_error:
                arguments = step.span.output[0].tool_calls[result.position].arguments
                tool_worked[result.name].append((step.index, arguments))
                worked_with[result.name, arguments] = step.index
        if step.results and not any(result.is_error for result in step.results):
            any_tool_worked[step.thread] = step.index
    is_team = len({step.agent_name for step in episode.steps}) > 1
    return RecoveryFacts(
        last_index=last.index,
        ended_well=ended_well,
        has_failed=has_failed,
        is_team=is_team,
        tool_worked=dict(tool_worked),
        worked_with=worked_with,
        any_tool_worked=any_tool_worked,
        answered=answered,
        replied_to=replied_to,
    )


def _was_replied_to(step: Step, episode: Episode) -> bool:
    """Whether the step was words, and the next input of its conversation has words of a user's after them."""
    if step.following is None or step.span.output[0].tool_calls:
        return False
    since = episode.steps[step.following].span.input[len(step.span.input) :]
    return any(message.role == "user" and message.text.strip() for message in since)


def has_answered(step: Step) -> bool:
    """Whether the model call gave a whole answer that is recorded."""
    return not step.span.has_failed and not is_incomplete(step) and bool(step.span.output)


def made_progress(step: Step) -> bool:
    """Whether the step gave a whole answer and none of its tool calls failed."""
    if not has_answered(step):
        return False
    calls = step.span.output[0].tool_calls
    return not any(result.is_error for result in step.results) and (not calls or bool(step.results))
