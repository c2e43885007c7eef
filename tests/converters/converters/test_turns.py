"""A history in which a tool's answer, or the call that it answers, is evidently missing is not trained on."""

from typing import Any

import pytest

from .converters_world import OPENING, World, answers, text, trace_id

Message = dict[str, Any]

NO_CALL = "answers a tool call that is not in it"
NO_ANSWER = "a tool call in it has no answer"


def call(*ids: str) -> Message:
    parts = [{"type": "tool_call", "id": one, "name": "search", "arguments": {"query": one}} for one in ids]
    return {"role": "assistant", "parts": parts}


def say(content: str) -> Message:
    return text("assistant", content)


def user(content: str) -> Message:
    return text("user", content)


WHOLE: dict[str, list[Message]] = {
    "one": [call("a"), answers("a", "x")],
    "two_at_once": [call("a", "b"), answers("b", "y"), answers("a", "x")],
    "one_message_each": [call("a"), call("b"), answers("a", "x"), answers("b", "y")],
    "one_after_another": [call("a"), answers("a", "x"), call("a"), answers("a", "y")],
    "other_ids": [call("item-1", "item-2"), answers("call-1", "x"), answers("call-2", "y")],
    "no_ids": [call("", ""), answers("", "x"), answers("", "y")],
    "answers_told_twice": [call("a"), answers("a", "x"), answers("a", "x")],
    "calls_told_twice": [call("a", "b", "a", "b"), answers("a", "x"), answers("b", "y")],
    "late": [call("a", "b"), answers("a", "x"), say("One is there."), answers("b", "y")],
    "again_later": [call("a"), answers("a", "wait"), say("I wait."), answers("a", "x"), say("So."), user("?")],
    "words_after_the_call": [call("a"), say("I look."), answers("a", "x")],
    "the_user_did_not_wait": [call("a"), user("Stop."), say("I stopped."), user("Thanks.")],
    "answered_by_the_user": [call("a"), {"role": "user", "parts": answers("a", "x")["parts"]}],
}

LACKING: dict[str, tuple[str, list[Message]]] = {
    "words_only": (NO_CALL, [say("I look."), answers("a", "x")]),
    "words_only_without_ids": (NO_CALL, [say("I look."), answers("", "x")]),
    "no_words": (NO_CALL, [answers("a", "x")]),
    "one_call_too_few": (NO_CALL, [call("a"), answers("a", "x"), answers("b", "y")]),
    "second_turn": (NO_CALL, [call("a"), answers("a", "x"), say("More."), answers("b", "y"), answers("c", "z")]),
    "long_ago": (NO_CALL, [answers("a", "x"), say("So."), user("And?"), call("b"), answers("b", "y")]),
    "no_answer": (NO_ANSWER, [call("a")]),
    "one_answer_too_few": (NO_ANSWER, [call("a", "b"), answers("a", "x")]),
    "the_model_went_on": (NO_ANSWER, [call("a", "b"), answers("a", "x"), say("So."), user("And?")]),
    "two_turns_without": (NO_ANSWER, [call("a"), call("b"), answers("b", "x")]),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_history_that_may_be_whole_is_trained_on(name: str) -> None:
    world = World()
    world.call([*OPENING, *WHOLE[name]], say("Done."), trace=trace_id(name))
    assert world.convert().transitions["untrainable_reason"].to_list() == [""]


@pytest.mark.parametrize("name", LACKING)
def test_a_history_with_a_gap_is_not(name: str) -> None:
    world = World()
    what, seen = LACKING[name]
    span = world.call([*OPENING, *seen], say("Done."), trace=trace_id(name))
    row = world.convert().transitions.row(0, named=True)
    assert row["untrainable_reason"] == "missing_content"
    assert row["untrainable_detail"] == f"span {span}, attribute gen_ai.input.messages: {what}"


@pytest.mark.parametrize("name", LACKING)
def test_a_gap_stays_one_however_long_the_conversation_goes_on(name: str) -> None:
    world = World()
    what, seen = LACKING[name]
    shown = [*OPENING, *seen]
    for turn in range(4):
        world.call(shown, say(f"So {turn}."), trace=trace_id("long"))
        shown = [*shown, say(f"So {turn}."), user(f"And {turn}?")]
    reasons = world.convert().transitions["untrainable_reason"].to_list()
    # A model that goes on before the user asks again leaves no doubt that the answer is lost.
    assert reasons == ["missing_content"] * 4, what


def test_words_are_no_action_where_tools_answered_them() -> None:
    world = World()
    first = world.call([*OPENING], say("Let me look."), trace=trace_id("t1"))
    shown = [*OPENING, say("Let me look."), answers("", "rain")]
    second = world.call(shown, say("Rain."), trace=trace_id("t2"))
    world.call([*shown, say("Rain."), user("Thanks.")], say("Gladly."), trace=trace_id("t3"))
    steps = world.convert().transitions.sort("step")
    assert steps["untrainable_reason"].to_list() == ["missing_content"] * 3
    assert f"span {first}" in steps["untrainable_detail"][0]
    assert second in steps["untrainable_detail"][0]


@pytest.mark.parametrize("arguments", [{}, {"query": "a"}], ids=["lost", "told"])
def test_a_call_whose_arguments_only_the_history_tells_is_no_action(arguments: dict[str, str]) -> None:
    world = World()
    said = {"role": "assistant", "parts": [{**call("a")["parts"][0], "arguments": arguments}]}
    world.call([*OPENING], said, trace=trace_id("t"))
    world.call([*OPENING, call("a"), answers("a", "x")], say("Done."), trace=trace_id("t"))
    reasons = world.convert().transitions.sort("step")["untrainable_reason"].to_list()
    assert reasons == ["" if arguments else "missing_content", ""]


def test_words_to_which_the_history_adds_a_call_are_no_action() -> None:
    world = World()
    world.call([*OPENING], say("Let me look."), trace=trace_id("t1"))
    whole = {"role": "assistant", "parts": [*say("Let me look.")["parts"], *call("a")["parts"]]}
    world.call([*OPENING, whole, answers("a", "x")], say("Done."), trace=trace_id("t2"))
    converted = world.convert()
    assert converted.episodes["step_count"].to_list() == [2]
    assert converted.transitions.sort("step")["untrainable_reason"].to_list() == ["missing_content", ""]


def test_an_answer_that_ends_for_a_call_and_holds_none_was_not_recorded_nor_was_what_repeats_it() -> None:
    world = World()
    world.call([*OPENING], say("Let me look."), trace=trace_id("t1"), finish="tool_call")
    shown = [*OPENING, say("Let me look."), user("rain")]
    world.call(shown, say("Rain."), trace=trace_id("t2"))
    converted = world.convert()
    assert converted.transitions.sort("step")["untrainable_reason"].to_list() == ["missing_content"] * 2
    assert converted.failures.is_empty()


@pytest.mark.parametrize(("finish", "reason"), [("", "missing_content"), ("stop", "")])
def test_an_answer_without_a_word_counts_where_its_end_is_told(finish: str, reason: str) -> None:
    world = World()
    nothing: dict[str, Any] = {"gen_ai.response.finish_reasons": [finish] if finish else []}
    nothing["gen_ai.output.messages"] = [{**say(""), "finish_reason": finish}]
    world.call([*OPENING], say(""), trace=trace_id("t"), attributes=nothing)
    assert world.convert().transitions["untrainable_reason"].to_list() == [reason]


@pytest.mark.parametrize("where", ["below_words", "in_a_tools_text"])
def test_what_a_tool_says_in_plain_text_answers_a_call_too(where: str) -> None:
    world = World()
    said = say("Let me look.") if where == "below_words" else call("a")
    world.call([*OPENING, said, text("tool", "rain")], say("Rain."), trace=trace_id("t"))
    assert world.convert().transitions["is_trainable"].to_list() == [where != "below_words"]
