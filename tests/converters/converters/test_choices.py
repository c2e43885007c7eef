"""A request for several choices: the one that the program used is the action, with its tokens; else nothing is."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .converters_world import OPENING, TOOLS, Message, World, answers, asks, text, trace_id

TRACE = trace_id("t")
DONE = text("assistant", "It rains.")
AMBIGUOUS = "ambiguous_choice"

Row = dict[str, Any]


def rows(world: World) -> list[Row]:
    return list(world.convert().transitions.sort("step").iter_rows(named=True))


def reasons(world: World) -> list[str]:
    return [row["untrainable_reason"] for row in rows(world)]


def said(row: Row) -> Any:
    """Text and tool calls of an action."""
    parts = [part for part in json.loads(row["action"])["parts"] if part["type"] != "reasoning"]
    return [part.get("content") or (part["name"], part["arguments"]) for part in parts]


def chat(message: Message) -> Message:
    """A message in OpenAI's form."""
    if not message["parts"]:
        return {"role": message["role"], "content": ""}
    part = message["parts"][0]
    if part["type"] == "text":
        return {"role": message["role"], "content": part["content"]}
    if part["type"] == "tool_call_response":
        return {"role": "tool", "tool_call_id": part["id"], "content": part["response"]}
    call = {"name": part["name"], "arguments": json.dumps(part["arguments"])}
    return {"role": "assistant", "tool_calls": [{"id": part["id"], "type": "function", "function": call}]}


def finish(message: Message) -> str:
    return "tool_calls" if message["parts"] and message["parts"][0]["type"] == "tool_call" else "stop"


def openllmetry(seen: Sequence[Message], choices: Sequence[Message]) -> Row:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.is_streaming": False,
        "gen_ai.input.messages": json.dumps(list(seen)),
        "gen_ai.tool.definitions": json.dumps(TOOLS),
        "gen_ai.response.finish_reasons": json.dumps([finish(choice) for choice in choices]),
        "gen_ai.output.messages": json.dumps([{**choice, "finish_reason": finish(choice)} for choice in choices]),
    }


def otel_genai(seen: Sequence[Message], choices: Sequence[Message]) -> Row:
    """OpenTelemetry's conventions; the finish reasons stand beside the messages."""
    values = openllmetry(seen, choices) | {"gen_ai.output.messages": json.dumps(list(choices))}
    del values["gen_ai.is_streaming"]
    return values


def indexed(prefix: str, messages: Sequence[Message]) -> Row:
    values: Row = {}
    for place, message in enumerate(map(chat, messages)):
        own = f"{prefix}.{place}"
        values[f"{own}.role"] = message["role"]
        for key in ("content", "tool_call_id"):
            if key in message:
                values[f"{own}.{key}"] = message[key]
        for number, call in enumerate(message.get("tool_calls", ())):
            values[f"{own}.tool_calls.{number}.id"] = call["id"]
            values |= {f"{own}.tool_calls.{number}.{key}": value for key, value in call["function"].items()}
    return values


def openllmetry_indexed(seen: Sequence[Message], choices: Sequence[Message]) -> Row:
    values = {"llm.request.type": "chat", **indexed("gen_ai.prompt", seen), **indexed("gen_ai.completion", choices)}
    ends = {f"gen_ai.completion.{place}.finish_reason": finish(choice) for place, choice in enumerate(choices)}
    return values | ends | {"llm.request.functions.0.name": "search"}


def openinference(seen: Sequence[Message], choices: Sequence[Message]) -> Row:
    values: Row = {"openinference.span.kind": "LLM", "llm.model_name": "tiny@v1"}
    for prefix, messages in (("llm.input_messages", seen), ("llm.output_messages", choices)):
        for key, value in indexed(prefix, messages).items():
            place, _, rest = key.removeprefix(f"{prefix}.").partition(".")
            number, _, of_call = rest.removeprefix("tool_calls.").partition(".")
            if rest.startswith("tool_calls."):
                name = of_call if of_call == "id" else f"function.{of_call}"
                rest = f"tool_calls.{number}.tool_call.{name}"
            values[f"{prefix}.{place}.message.{rest}"] = value
    listed = [
        {"index": place, "finish_reason": finish(choice), "message": chat(choice)}
        for place, choice in enumerate(choices)
    ]
    response = {"id": "", "object": "chat.completion", "choices": listed}
    return values | {"output.value": response, "output.mime_type": "application/json"}


Dialect = Callable[[Sequence[Message], Sequence[Message]], Row]
DIALECTS = (openllmetry, otel_genai, openllmetry_indexed, openinference)


class Program:
    """A program whose requests ask for several choices, behind the gateway; token ids are counted.

    Args:
        dialect: How its spans record a call.
        recorded: How many choices they record; None for all.
        attributes: Of every span.
    """

    def __init__(
        self, dialect: Dialect = openllmetry, recorded: int | None = None, attributes: Row | None = None
    ) -> None:
        self.world = World()
        self.seen: list[Message] = list(OPENING)
        self.prompt = [1, 2]
        self._dialect, self._recorded, self._attributes = dialect, recorded, attributes or {}
        self._token = 10

    def request(self, choices: Sequence[Message], **where: Any) -> list[list[int]]:
        """Ask; return the ids that were sampled, those of each choice."""
        number = len(self.world.spans)
        values = self._dialect(self.seen, choices[: self._recorded])
        values |= {"gen_ai.request.model": "tiny@v1", "gen_ai.response.id": f"r{number}", **self._attributes}
        if "output.value" in values:
            values["output.value"] = json.dumps(values["output.value"] | {"id": f"r{number}"})
        self.world.span("chat", values, trace=TRACE, **where)
        sampled: list[list[int]] = []
        for place, choice in enumerate(choices):
            sampled.append([self._token, self._token + 1 + place % 2][: 1 + place % 2])
            self._token += 2
            self.world.capture(self.prompt, sampled[-1], response_id=f"r{number}", choice=place, finish=finish(choice))
        return sampled

    def go_on(self, choice: Message, sampled: Sequence[int], *news: Message) -> None:
        """Put a choice, and what came of it, into the history."""
        self.seen += [choice, *news]
        self.prompt = [*self.prompt, *sampled, 5]


def plans(step: int) -> list[Message]:
    """Four choices: words, and three different calls."""
    return [text("assistant", f"Hm {step}."), *(asks(f"c{step}-{place}") for place in range(1, 4))]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("used", [0, 1, 2, 3])
def test_best_of_n_trains_the_choice_with_which_the_program_goes_on(dialect: Dialect, used: int) -> None:
    program = Program(dialect)
    choices = [text("assistant", f"Candidate {place}.") for place in range(4)]
    sampled = program.request(choices)
    program.go_on(choices[used], sampled[used], text("user", "Sure?"))
    last = program.request([DONE])
    program.world.score(1.0, trace_id=TRACE)
    first, second = rows(program.world)
    assert said(first) == [f"Candidate {used}."]
    assert (first["response_token_ids"], first["reward"], first["is_trainable"]) == (sampled[used], 1.0, True)
    assert first["logprobs"] == pytest.approx([-0.5 - token / 1000 for token in sampled[used]])
    assert first["sampling"]["temperature"] == "1.0"
    assert first["capture_join"] == "response_id"
    assert second["is_trainable"]
    (row,) = program.world.convert().trajectories.iter_rows(named=True)
    assert row["response_token_ids"] == [*sampled[used], 5, *last[0]]
    assert row["loss_mask"] == [1] * len(sampled[used]) + [0] + [1]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_best_of_n_that_is_judged_outside_trains_nothing(dialect: Dialect) -> None:
    program = Program(dialect)
    program.request([text("assistant", f"Candidate {place}.") for place in range(4)])
    program.world.score(1.0, trace_id=TRACE)
    (row,) = rows(program.world)
    assert (row["untrainable_reason"], row["is_trainable"], row["reward"]) == (AMBIGUOUS, False, 1.0)
    assert row["untrainable_detail"] == (
        "span 0000000000000001: 4 choices, and no later call and no tool shows one of them, "
        "expected the one that the program used"
    )
    (tokens,) = program.world.convert().trajectories.iter_rows(named=True)
    assert (tokens["is_trainable"], tokens["untrainable_reason"], sum(tokens["loss_mask"])) == (False, AMBIGUOUS, 0)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_program_that_goes_on_from_the_third_choice_at_every_turn_trains_on_that_one(dialect: Dialect) -> None:
    program = Program(dialect)
    expected: list[int] = []
    mask: list[int] = []
    for step in range(3):
        choices = plans(step)
        sampled = program.request(choices)
        program.go_on(choices[2], sampled[2], answers(f"c{step}-2", "rain"))
        expected += [*sampled[2], 5]
        mask += [1] * len(sampled[2]) + [0]
    (last,) = program.request([DONE])
    found = rows(program.world)
    assert [row["untrainable_reason"] for row in found] == [""] * 4
    assert [said(row) for row in found[:3]] == [[("search", {"query": f"c{step}-2"})] for step in range(3)]
    assert [row["finish_reason"] for row in found] == ["tool_call"] * 3 + ["stop"]
    assert [[result["content"] for result in json.loads(row["tool_results"])] for row in found[:3]] == [["rain"]] * 3
    (row,) = program.world.convert().trajectories.iter_rows(named=True)
    assert (row["response_token_ids"], row["loss_mask"]) == ([*expected, *last], [*mask, 1])
    assert row["sampled_steps"] == [0, 1, 2, 3]


def test_the_neighbours_of_an_ambiguous_step_are_trained_on() -> None:
    program = Program()
    (sampled,) = program.request([asks("a")])
    program.go_on(asks("a"), sampled, answers("a", "x"))
    program.request([text("assistant", "One."), text("assistant", "Two.")])
    program.seen = [*program.seen, text("assistant", "(summary)"), text("user", "go on")]
    program.prompt = [9, 9]
    program.request([DONE])
    assert reasons(program.world) == ["", AMBIGUOUS, ""]
    trajectories = program.world.convert().trajectories.sort("row_number")
    assert trajectories["loss_mask"].to_list() == [[1, 0, 0], [1]]


@pytest.mark.parametrize("recorded", [None, 1])
@pytest.mark.parametrize("used", [0, 1])
def test_a_choice_that_the_span_may_not_have_is_joined_by_text_and_tokens(recorded: int | None, used: int) -> None:
    program = Program(recorded=recorded)
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices)
    program.go_on(choices[used], sampled[used], text("user", "Sure?"))
    program.request([DONE])
    first, second = rows(program.world)
    assert (said(first), first["response_token_ids"]) == ([["One."], ["Two."]][used], sampled[used])
    assert (first["finish_reason"], first["untrainable_reason"], second["untrainable_reason"]) == ("stop", "", "")
    assert first["untrainable_detail"] == "span 0000000000000001: choices of its output that are no steps: 1"
    (row,) = program.world.convert().trajectories.iter_rows(named=True)
    assert row["sampled_steps"] == [0, 1]


def test_a_choice_that_neither_span_nor_tokens_show_is_ambiguous() -> None:
    program = Program(recorded=1)
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    program.request(choices)
    program.go_on(choices[1], [7, 7, 7], text("user", "Sure?"))
    program.request([DONE])
    assert reasons(program.world) == [AMBIGUOUS, ""]
    assert reasons_of_last(recorded=1) == [AMBIGUOUS]


def reasons_of_last(recorded: int) -> list[str]:
    program = Program(recorded=recorded)
    program.request([text("assistant", "One."), text("assistant", "Two.")])
    return reasons(program.world)


def test_the_first_choice_alone_in_a_span_is_joined_where_the_history_repeats_it_in_other_tokens() -> None:
    program = Program(recorded=1)
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices)
    program.go_on(choices[0], [7, 7, 7], text("user", "Sure?"))
    program.request([DONE])
    first, _ = rows(program.world)
    assert (first["untrainable_reason"], first["response_token_ids"]) == ("", sampled[0])


@pytest.mark.parametrize("recorded", [None, 1])
def test_equal_choices_are_one_action(recorded: int | None) -> None:
    program = Program(recorded=recorded)
    program.request([DONE, DONE, DONE])
    if recorded:
        for generation in program.world.generations:
            generation |= {"response_token_ids": [4], "logprobs": [-0.5]}
    (row,) = rows(program.world)
    assert (row["untrainable_reason"], said(row)) == ("", ["It rains."])
    assert row["untrainable_detail"] == "span 0000000000000001: choices of its output that are no steps: 2"
    assert row["response_token_ids"] == program.world.generations[0]["response_token_ids"]


def test_of_equal_choices_among_others_the_first_counts() -> None:
    program = Program()
    choices = [text("assistant", "No."), DONE, DONE]
    sampled = program.request(choices)
    program.go_on(choices[2], sampled[2], text("user", "Sure?"))
    program.request([text("assistant", "Yes.")])
    first, _ = rows(program.world)
    assert (said(first), first["response_token_ids"]) == (["It rains."], sampled[1])


def test_of_equal_calls_the_one_whose_id_was_answered_counts() -> None:
    program = Program()
    choices = [asks(identity, arguments={"query": "q"}) for identity in ("a", "b", "c")]
    sampled = program.request(choices)
    program.go_on(choices[1], sampled[1], answers("b", "x"))
    program.request([DONE])
    first, _ = rows(program.world)
    assert (first["response_token_ids"], json.loads(first["tool_results"])[0]["tool_call_id"]) == (sampled[1], "b")


def test_thoughts_that_the_history_leaves_out_do_not_hide_the_choice() -> None:
    program = Program()
    choices = [text("assistant", answer) for answer in ("One.", "Two.")]
    thought = [
        {**choice, "parts": [{"type": "reasoning", "content": f"why {place}"}, *choice["parts"]]}
        for place, choice in enumerate(choices)
    ]
    sampled = program.request(thought)
    program.go_on(choices[1], [], text("user", "Sure?"))
    program.request([DONE])
    first, _ = rows(program.world)
    assert (said(first), first["response_token_ids"], first["untrainable_reason"]) == (["Two."], sampled[1], "")


def test_tools_that_ran_show_the_choice_of_the_last_call() -> None:
    program = Program()
    sampled = program.request([asks("a"), asks("b"), DONE])
    program.world.tool("b", "rain", trace=TRACE)
    (row,) = rows(program.world)
    assert (row["response_token_ids"], row["untrainable_reason"]) == (sampled[1], "")
    assert json.loads(row["tool_results"])[0]["content"] == "rain"


def test_tools_of_several_choices_show_none() -> None:
    program = Program()
    program.request([asks("a"), asks("b"), DONE])
    for identity in ("a", "b"):
        program.world.tool(identity, "rain", trace=TRACE)
    assert reasons(program.world) == [AMBIGUOUS]


def test_an_id_that_every_answer_counts_from_one_shows_nothing() -> None:
    program = Program()
    (sampled,) = program.request([asks("call_1")])
    program.go_on(asks("call_1"), sampled, answers("call_1", "x"))
    program.world.tool("call_1", "x", trace=TRACE)
    program.request([DONE, asks("call_1", arguments={"query": "other"})])
    assert reasons(program.world) == ["", AMBIGUOUS]


def test_later_calls_that_go_on_from_several_choices_show_none() -> None:
    program = Program()
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    program.request(choices)
    for choice in choices:
        program.world.call([*OPENING, choice, text("user", "Sure?")], DONE, trace=TRACE)
    first, *others = rows(program.world)
    assert first["untrainable_reason"] == AMBIGUOUS
    assert "later calls and tools show 2 of them" in first["untrainable_detail"]
    assert [row["untrainable_reason"] for row in others] == ["", ""]


def test_the_sum_of_all_choices_is_what_the_usage_counts() -> None:
    for total, expected in ((3, ""), (1, "token_mismatch")):
        program = Program(attributes={"gen_ai.usage.output_tokens": total})
        choices = [text("assistant", "One."), text("assistant", "Two.")]
        sampled = program.request(choices)
        program.go_on(choices[1], sampled[1], text("user", "Sure?"))
        program.world.call(program.seen, DONE, trace=TRACE)
        assert reasons(program.world) == [expected, ""]


def test_a_stream_that_broke_in_the_used_choice_is_incomplete() -> None:
    for broken, expected in ((0, ""), (1, "incomplete_stream")):
        program = Program()
        choices = [text("assistant", "One."), text("assistant", "Two.")]
        sampled = program.request(choices)
        program.world.generations[broken]["is_complete"] = False
        program.go_on(choices[1], sampled[1], text("user", "Sure?"))
        program.request([DONE])
        assert reasons(program.world)[0] == expected


def test_choices_join_by_the_callers_trace_context_too() -> None:
    program = Program(attributes={"gen_ai.response.id": ""})
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices, span_id="a" * 16)
    for generation in program.world.generations:
        generation |= {"trace_id": TRACE, "parent_span_id": "a" * 16}
    program.go_on(choices[1], sampled[1], text("user", "Sure?"))
    program.world.call(program.seen, DONE, trace=TRACE)
    first, _ = rows(program.world)
    assert (first["capture_join"], first["response_token_ids"]) == ("traceparent", sampled[1])


def test_a_later_batch_gives_the_rows_of_one() -> None:
    program = Program()
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices)
    assert reasons(program.world) == [AMBIGUOUS]
    program.go_on(choices[1], sampled[1], text("user", "Sure?"))
    program.request([DONE])
    assert next(row["response_token_ids"] for row in rows(program.world)) == sampled[1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("empty", [0, 1])
def test_an_empty_choice_keeps_the_place_of_the_others(dialect: Dialect, empty: int) -> None:
    program = Program(dialect)
    choices = [text("assistant", f"Candidate {place}.") for place in range(3)]
    choices[empty] = {"role": "assistant", "parts": []}
    sampled = program.request(choices)
    program.go_on(choices[2], sampled[2], text("user", "Sure?"))
    program.request([DONE])
    first, _ = rows(program.world)
    assert (said(first), first["response_token_ids"], first["untrainable_reason"]) == (["Candidate 2."], sampled[2], "")


def test_choices_without_a_whole_response_beside_them_are_not_one_answer() -> None:
    """LiteLLM's OpenInference instrumentor keeps the text of the last choice beside all of them."""
    world = World()
    values = openinference(OPENING, [text("assistant", "One."), text("assistant", "Two.")]) | {"output.value": "Two."}
    world.span("completion", values, trace=TRACE)
    world.call([*OPENING, text("assistant", "One."), text("user", "Sure?")], DONE, trace=TRACE)
    assert [said(row) for row in rows(world)] == [["One."], ["It rains."]]


def test_a_choice_has_its_own_finish_reason_without_a_capture() -> None:
    world = World()
    choices = [asks("a"), text("assistant", "It ra"), DONE]
    values = otel_genai(OPENING, choices)
    values |= {"gen_ai.response.finish_reasons": json.dumps(["tool_calls", "length", "stop"])}
    world.span("chat", values, trace=TRACE)
    world.call([*OPENING, choices[1], text("user", "Go on.")], DONE, trace=TRACE)
    first, _ = rows(world)
    assert (said(first), first["finish_reason"], first["untrainable_reason"]) == (["It ra"], "length", "")


def test_the_next_prompts_tokens_show_the_choice_that_an_edited_history_hides() -> None:
    program = Program()
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices)
    program.go_on(text("assistant", "(left out)"), sampled[1], text("user", "Sure?"))
    program.request([DONE])
    first, _ = rows(program.world)
    assert (said(first), first["response_token_ids"], first["untrainable_reason"]) == (["Two."], sampled[1], "")


def test_a_stream_of_several_choices_is_joined_like_a_whole_answer() -> None:
    program = Program(attributes={"gen_ai.is_streaming": True})
    choices = [text("assistant", "One."), text("assistant", "Two.")]
    sampled = program.request(choices)
    program.go_on(choices[1], sampled[1], text("user", "Sure?"))
    program.request(choices)
    first, last = rows(program.world)
    assert (first["response_token_ids"], first["untrainable_reason"]) == (sampled[1], "")
    assert last["untrainable_reason"] == AMBIGUOUS
