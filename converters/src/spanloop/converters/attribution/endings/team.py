"""A team of agents that failed although nothing in it did: who probably went wrong first, as a guess that says so.

No sign, but what is generally true of such failures: the mistake that decides comes early, later agents repeat and
confirm it, and who did most of the work is likelier to have made it than who handed on or agreed. Named is the first
substantive step of the agent that first said the answer, else of the one that wrote most.
"""

from collections import Counter
from typing import Final

from spanloop.converters.enums import FaultOwner

from ...steps import Episode, Step
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding
from .answer import origin_of_answer

_FEW_WORDS: Final = 3
"""A message of so many ("TERMINATE", "I agree.") does nothing."""


class TeamAnswer(EndingRule):
    """A team of agents failed in order: names the agent that probably went wrong first."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        if reward is None:
            return None
        acts = [step for step in episode.steps if _is_substantive(step)]
        written: Counter[str] = Counter()
        for step in acts:
            written[step.agent_name] += _length(step)
        if len(written) <= 1:
            return None
        origin = origin_of_answer(episode)
        agent = origin[0].agent_name if origin is not None else written.most_common(1)[0][0]
        first = next((step for step in acts if step.agent_name == agent), None)
        if first is None:
            return None
        evidence: dict[str, object] = {
            "reward": repr(reward),
            "written_by_agent": dict(written.most_common(10)),
            "chosen": "first said the answer" if origin is not None else "wrote most",
        }
        if origin is not None:
            evidence["value"] = origin[1]
        message = f"the episode ended in order with reward {reward:g}"
        return LocatedFinding(
            first, Finding(ErrorClass.WRONG_ANSWER, FaultOwner.POLICY, 0.35, message, evidence), first.span
        )


def _is_substantive(step: Step) -> bool:
    output = step.span.output[0] if step.span.output else None
    return output is not None and (bool(output.tool_calls) or len(output.text.split()) > _FEW_WORDS)


def _length(step: Step) -> int:
    """Characters of a step's message and of what it asked tools for."""
    output = step.span.output[0]
    return len(output.text) + sum(len(call.arguments) for call in output.tool_calls)
