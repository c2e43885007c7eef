"""A failed episode that went round in circles without repeating itself to the letter.

Two kinds, each of consecutive steps of one thread: the same call with the same answer under other words, three times
and more; and one tool that is asked with ever other arguments and answers the very same, four times and more (a search
put another way, again and again; to write four files is none). Only where the reward says that the episode failed: to
ask in many ways may be right.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar, Final

from pydantic import Field

from spanloop.converters.enums import FaultOwner

from ...steps import Episode, Step, Thread
from ..base import EndingRule, ErrorClass, Finding, LocatedFinding
from ..tool_calls.tool_kinds import is_query

_EMPTY_RESULT: Final = re.compile(r"\[\s*\]|\bno\b|\bnot\b|\bnothing\b|\bnone\b|\bempty\b|\b0\b", re.IGNORECASE)


class RepeatedActions(EndingRule):
    """One call was repeated in other words, or one tool answered the same again and again."""

    is_event: ClassVar[bool] = True
    same: int = Field(default=3, ge=2)
    """Fewest consecutive steps with the same call and the same answer."""
    alike: int = Field(default=4, ge=2)
    """Fewest consecutive steps with one tool and the same answer, the arguments being different."""

    def find(self, episode: Episode, reward: float | None) -> LocatedFinding | None:
        """Return the finding; None without one."""
        del reward
        threads: dict[Thread, list[Step]] = defaultdict(list)
        for step in episode.steps if len(episode.steps) >= min(self.same, self.alike) else ():
            threads[step.thread].append(step)
        runs = [run for steps in threads.values() for run in _runs(steps)]
        for run in runs:
            calls = [step.span.output[0].tool_calls for step in run]
            is_same = len({tuple((call.name, call.arguments) for call in each) for each in calls}) == 1
            if len(run) >= (self.same if is_same else self.alike) and (is_same or _asks_in_vain(run[0])):
                evidence: dict[str, object] = {
                    "first_step": run[0].index,
                    "rounds": len(run),
                    "arguments": [call.arguments[:200] for each in calls[:3] for call in each],
                    "answer": run[0].results[0].content[:500],
                }
                message = (
                    f"{calls[0][0].name!r} was called {len(run)} times in succession and answered the same each time"
                )
                finding = Finding(ErrorClass.LOOP, FaultOwner.POLICY, 0.8 if is_same else 0.6, message, evidence)
                return LocatedFinding(run[1], finding, run[1].span, calls[0][0].name)
        return None


def _asks_in_vain(step: Step) -> bool:
    return all(is_query(result.name) or _EMPTY_RESULT.search(result.content[:200]) for result in step.results)


def _runs(steps: Sequence[Step]) -> list[list[Step]]:
    """Consecutive steps that called the same tools and got the same answers, as long as they go."""
    return [list(run) for sign, run in groupby(steps, _sign) if sign]


def _sign(step: Step) -> tuple[tuple[str, str], ...]:
    """Tools and answers; empty for a step that called none, or whose calls failed or went unanswered."""
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if not calls or len(step.results) < len(calls) or any(result.is_error for result in step.results):
        return ()
    return tuple((result.name, result.content.strip()) for result in step.results)
