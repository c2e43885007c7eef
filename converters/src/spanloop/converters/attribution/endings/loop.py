"""A conversation that goes round in circles: the same actions with the same answers, three times and more.

Answers count: asking a job for its state until it has changed is no loop. Circles of up to three steps are seen. A
tool that fails every time is no loop of the policy's but a failure of its own, which other rules name.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pydantic import Field

from spanloop.converters.enums import FaultOwner

from ...steps import Episode, Step, Thread
from ..base import EpisodeRule, ErrorClass, Finding, LocatedFinding


class Loop(EpisodeRule):
    """The same actions were repeated with the same answers."""

    rounds: int = Field(default=3, ge=2)
    """Fewest rounds that are a loop."""
    most_steps: int = Field(default=3, ge=1)
    """Most steps of one round."""

    def find(self, episode: Episode) -> Iterator[LocatedFinding]:
        """Yield the findings."""
        outputs = [step.span.output[0].content for step in episode.steps if step.span.output]
        if len(outputs) - len(set(outputs)) < self.rounds - 1:
            return
        threads: dict[Thread, list[Step]] = defaultdict(list)
        for step in episode.steps:
            threads[step.thread].append(step)
        for steps in threads.values():
            done = Counter(step.span.output[0].content for step in steps if step.span.output)
            if max(done.values(), default=0) >= self.rounds:
                yield from self._circles(steps)

    def _circles(self, steps: Sequence[Step]) -> Iterator[LocatedFinding]:
        signs = [_sign(step) for step in steps]
        start = 0
        while start < len(steps):
            length, rounds = self._longest(signs, start)
            if rounds < self.rounds:
                start += 1
                continue
            yield _located(steps, start, length, rounds)
            start += length * rounds

    def _longest(self, signs: Sequence[tuple[str, ...]], start: int) -> tuple[int, int]:
        """(steps a round, rounds) of the circle that begins at ``start``; no rounds without one."""
        for length in range(1, self.most_steps + 1):
            if not all(signs[start : start + length]):
                break
            end = start + length
            while end < len(signs) and signs[end] and signs[end] == signs[end - length]:
                end += 1
            rounds = (end - start) // length
            if rounds >= self.rounds:
                return length, rounds
        return 1, 0


def _located(steps: Sequence[Step], start: int, length: int, rounds: int) -> LocatedFinding:
    first_again = steps[start + length]
    calls = first_again.span.output[0].tool_calls
    evidence: dict[str, object] = {
        "first_step": steps[start].index,
        "steps_a_round": length,
        "rounds": rounds,
        "action": first_again.span.output[0].json[:500],
    }
    message = f"{length} step(s) done {rounds} times with the same answers"
    finding = Finding(ErrorClass.LOOP, FaultOwner.POLICY, 0.9, message, evidence)
    return LocatedFinding(first_again, finding, first_again.span, calls[0].name if calls else "")


def _sign(step: Step) -> tuple[str, ...]:
    """Return the step's tool calls with their results; empty for a step that cannot be part of a loop."""
    span = step.span
    if span.has_failed or not span.output or any(result.is_error for result in step.results):
        return ()
    return (*span.output[0].content, *(result.content for result in step.results))
