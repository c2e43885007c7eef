"""Components of the composite reward that judge how tools were used."""

import json
from typing import Any

import pytest

from spanloop.converters.options import Options
from spanloop.converters.rewards import AgentReward, Attempt, Expectation, NamedReward, ReferenceCall, Weights

from .converters_world import OPENING, World, answers, asks, text, trace_id

ONLY = dict.fromkeys(("completion", "tool_selection", "efficiency", "timing", "format"), 0.0)


def attempt_of(*calls: tuple[str, dict[str, Any], str], **scores: float) -> Attempt:
    """An attempt that makes the calls one after the other and answers."""
    world, seen = World(), list(OPENING)
    for number, (name, arguments, result) in enumerate(calls):
        asked = asks(f"c{number}", name, arguments)
        world.call(seen, asked, trace=trace_id("t"))
        seen += [asked, answers(f"c{number}", result)]
    world.call(seen, text("assistant", "Done."), trace=trace_id("t"))
    found: list[Attempt] = []
    world.convert(Options(reward_functions=(NamedReward("found", found.append),)))
    (attempt,) = found
    return Attempt(attempt.episode, attempt.scores._replace(breakdown=scores))


def component(name: str, attempt: Attempt, expected: Expectation | None = None) -> float | None:
    judgement = AgentReward(weights=Weights(**ONLY, **{name: 1.0}), most=2).judge(attempt, expected or Expectation())
    return judgement.components.get(name)


OK, BAD = "42", "Error: no such order"
ONE, TWO = ("look", {"id": 1}), ("book", {"id": 2})
REFERENCE = Expectation(calls=[ReferenceCall("look", {}), ReferenceCall("book", {"id": 2})])


@pytest.mark.parametrize(
    ("calls", "success", "timing", "recovery"),
    [
        ([(*ONE, OK), (*TWO, OK)], 1.0, 1.0, None),
        ([(*TWO, OK), (*ONE, OK)], 1.0, 0.5, None),  # booked before it looked, and never again
        ([(*TWO, OK), (*ONE, OK), (*TWO, OK)], 1.0, 0.75, None),  # booked too early, and again
        ([(*ONE, BAD), (*ONE, BAD), (*TWO, OK)], 1 / 3, 1.0, 0.5),  # a blind repetition, then a fallback
        ([(*ONE, BAD), (*ONE, OK)], 0.5, 0.5, 0.5),
        ([(*ONE, BAD), ("look", {"id": 7}, OK)], 0.5, 0.5, 1.0),
        ([(*ONE, BAD), (*TWO, BAD)], 0.0, 1.0, 0.125),
        ([], None, 0.0, None),
    ],
)
def test_success_timing_and_recovery_of_tool_calls(
    calls: list[tuple[str, dict[str, Any], str]], success: float | None, timing: float, recovery: float | None
) -> None:
    attempt = attempt_of(*calls)
    assert component("tool_success", attempt) == (None if success is None else pytest.approx(success))
    assert component("tool_timing", attempt, REFERENCE) == pytest.approx(timing)
    assert component("tool_timing", attempt) is None
    assert component("recovery", attempt) == (None if recovery is None else pytest.approx(recovery))


def test_a_rating_of_the_user_is_a_component_and_the_reason_is_one_sentence() -> None:
    attempt = attempt_of((*ONE, OK), rating=0.8)
    assert component("rating", attempt) == pytest.approx(0.8)
    assert component("rating", attempt_of((*ONE, OK))) is None
    weights = Weights(**{**ONLY, "completion": 1.0}, rating=1.0)
    judgement = AgentReward(weights=weights).judge(attempt, Expectation(answer="done", tools=[]))
    assert judgement.components == {"completion": 0.5, "rating": 0.4, "wrong_tool": -0.3}
    assert judgement.reason == "The reward is 0.60: completion contributes most (+0.50), wrong_tool least (-0.30)."
    assert json.dumps(judgement.components)
