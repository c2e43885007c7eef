"""Several answers to one question: the one that the program used is trained on; one that it threw away is not."""

import json
from typing import Any

import pytest

from spanloop.converters import Options

from .converters_world import OPENING, Message, World, answers, asks, text, trace_id

TRACE = trace_id("t")
USAGE = {"gen_ai.usage.input_tokens": 20}
BAD, GOOD = asks("bad", name="serach"), asks("good")
DONE = text("assistant", "It rains.")
AFTER = [*OPENING, GOOD, answers("good", "rain")]


def reasons(world: World, options: Options | None = None) -> list[str]:
    return world.convert(options).transitions.sort("step")["untrainable_reason"].to_list()


def retried(first: Message, **how: Any) -> World:
    world = World()
    world.call(OPENING, first, trace=TRACE, **how)
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)
    return world


@pytest.mark.parametrize("first", [BAD, text("assistant", "Hm."), asks("bad", arguments="{not json")])
def test_an_answer_that_a_retry_threw_away_is_not_trained_on(first: Message) -> None:
    world = retried(first)
    assert reasons(world) == ["abandoned_attempt", "", ""]
    assert reasons(world, Options(train_abandoned_attempts=True)) == ["", "", ""]
    detail = world.convert().transitions.sort("step")["untrainable_detail"][0]
    assert detail == "span 0000000000000001: span 0000000000000002 was asked the same again, and was used"


def test_each_of_several_thrown_away_answers_is() -> None:
    world = World()
    for said in (BAD, text("assistant", "Hm."), GOOD):
        world.call(OPENING, said, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)
    assert reasons(world) == ["abandoned_attempt", "abandoned_attempt", "", ""]


def test_a_last_answer_that_replaces_one_that_was_of_no_use_is_the_one_used() -> None:
    cases: list[tuple[Message, dict[str, Any]]] = [(DONE, {"finish": "length"}), (BAD, {"attributes": USAGE})]
    for first, how in cases:
        world = World()
        world.call(OPENING, first, trace=TRACE, **how)
        world.call(OPENING, text("assistant", "It rains in Paris."), trace=TRACE, attributes=USAGE)
        assert reasons(world) == ["abandoned_attempt", ""]


def test_a_failed_request_keeps_its_own_reason() -> None:
    world = World()
    world.call(OPENING, None, trace=TRACE, error="Rate limit reached")
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)
    assert reasons(world) == ["request_failed", "", ""]


def samples(world: World) -> None:
    """Two calls at once, one of which goes on."""
    world.call(OPENING, BAD, trace=TRACE, start_s=0)
    world.call(OPENING, GOOD, trace=TRACE, start_s=0.2)
    world.call(AFTER, DONE, trace=TRACE)


def last_of_several(world: World) -> None:
    """Answers in a row, of which the program may have used any."""
    for said in ("Rain.", "Sun.", "Rain!"):
        world.call(OPENING, text("assistant", said), trace=TRACE)


def equal_answers(world: World) -> None:
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)


def sub_agents(world: World) -> None:
    """One question to two agents in a row, each in a span of its own; the second needs a tool."""
    for span_id in ("a" * 16, "b" * 16):
        world.span("agent", {}, trace=TRACE, span_id=span_id, duration_s=60, start_s=0)
    world.clock_s = 1
    world.call(OPENING, text("assistant", "Sun."), trace=TRACE, parent="a" * 16)
    world.call(OPENING, GOOD, trace=TRACE, parent="b" * 16)
    world.call(AFTER, DONE, trace=TRACE, parent="b" * 16)


def an_answer_that_another_call_weighs(world: World) -> None:
    world.call(OPENING, text("assistant", "Sun, I think."), trace=TRACE)
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)
    world.call([text("user", "Which? 1: Sun, I think. 2: It rains.")], text("assistant", "2"), trace=TRACE)


def a_tool_that_ran(world: World) -> None:
    """The call had its effect, though the history that tells of it was dropped."""
    world.call(OPENING, asks("ran"), trace=TRACE)
    world.tool("ran", "snow", trace=TRACE)
    world.call(OPENING, GOOD, trace=TRACE)
    world.call(AFTER, DONE, trace=TRACE)


def a_history_that_was_not_recorded(world: World) -> None:
    world.call(OPENING, GOOD, trace=TRACE, attributes=USAGE)
    world.call(OPENING, DONE, trace=TRACE, attributes={"gen_ai.usage.input_tokens": 50})


@pytest.mark.parametrize(
    "make",
    [
        samples,
        last_of_several,
        equal_answers,
        sub_agents,
        an_answer_that_another_call_weighs,
        a_tool_that_ran,
        a_history_that_was_not_recorded,
    ],
)
def test_what_is_no_retry_is_trained_on(make: Any) -> None:
    world = World()
    make(world)
    assert set(reasons(world)) == {""}


def chosen(place: int, after: list[Message]) -> World:
    """A request for three choices, of which ``place`` is used."""
    choices = [text("assistant", "Hm."), BAD, text("assistant", "So.")]
    choices[place] = GOOD
    reasons = ["tool_call" if choice in (BAD, GOOD) else "stop" for choice in choices]
    told = json.dumps([{**choice, "finish_reason": end} for choice, end in zip(choices, reasons, strict=True)])
    values = {"gen_ai.output.messages": told, "gen_ai.response.finish_reasons": json.dumps(reasons)}
    world = World()
    world.call(OPENING, GOOD, trace=TRACE, response_id="r1", attributes=values)
    world.capture([1], [2], response_id="r1", generation_id="r1/0")
    world.tool("good", "rain", trace=TRACE)
    world.call(after, DONE, trace=TRACE)
    return world


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("after", [AFTER, AFTER[-1:]], ids=["history", "new messages only"])
def test_the_choice_that_the_program_went_on_from_is_the_action(place: int, after: list[Message]) -> None:
    first, last = chosen(place, after).convert().transitions.sort("step").iter_rows(named=True)
    assert json.loads(first["action"])["parts"] == GOOD["parts"]
    assert [result["content"] for result in json.loads(first["tool_results"])] == ["rain"]
    assert (first["finish_reason"], first["untrainable_reason"]) == ("tool_call", "")
    assert first["untrainable_detail"] == "span 0000000000000001: choices of its output that are no steps: 2"
    assert json.loads(last["action"])["parts"] == DONE["parts"]


def test_tokens_of_the_first_choice_are_not_those_of_another() -> None:
    for place, tokens in ((0, [2]), (1, [])):
        first = chosen(place, AFTER).convert().transitions.sort("step").row(0, named=True)
        assert first["response_token_ids"] == tokens


def test_without_a_later_call_the_first_choice_is_the_action() -> None:
    world = World()
    told = json.dumps([text("assistant", "One."), text("assistant", "Two.")])
    world.call(OPENING, DONE, trace=TRACE, attributes={"gen_ai.output.messages": told})
    (row,) = world.convert().transitions.iter_rows(named=True)
    assert json.loads(row["action"]) == text("assistant", "One.")
