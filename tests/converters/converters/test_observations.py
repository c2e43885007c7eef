"""Results that stand only in a user's message are read where a text names the call."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from .converters_world import OPENING, Message, World, asks, text, trace_id
from .dialect_calls import call_in

RESULT = "9 free seats"
BROKEN = "Error: the hall is closed"
LISTED = [{"id": "call_7", "type": "function", "function": {"name": "count", "arguments": {"of": "seats"}}}]
CALLING = f"Calling tools:\n{LISTED}"
BLOB = '{"action": "count", "action_input": {"of": "seats"}}'
CODE = "Thought: count them.\n<code>\nfree = count(of='seats')\nprint(free)\n</code>"
HERMES = '<tool_call>\n{"name": "count", "arguments": {"of": "seats"}}\n</tool_call>'
REACT = 'Thought: I count them.\nAction: count\nAction Input: {"of": "seats"}'


class Case(NamedTuple):
    """What the model said, what the next call was shown behind it, and the results: name, status, content."""

    said: Message
    shown: Sequence[Message]
    results: Sequence[tuple[str, str, str]] = (("count", "ok", RESULT),)


def said(content: str) -> Message:
    return text("assistant", content)


def user(content: str) -> Message:
    return text("user", content)


NO_RESULT: tuple[tuple[str, str, str], ...] = ()
API = asks("call_7", "count", {"of": "seats"})
TWO = {"role": "assistant", "parts": [*API["parts"], *asks("call_8", "count", {"of": "rows"})["parts"]]}

CASES = {
    "ReAct": Case(said(REACT), [said(REACT), user(f"Observation: {RESULT}")]),
    "ReAct with an error": Case(
        said(REACT), [said(REACT), user(f"Observation: {BROKEN}")], [("count", "error", BROKEN)]
    ),
    "ReAct with words as input": Case(
        said("Action: count\nAction Input: seats"),
        [said("Action: count\nAction Input: seats"), user(f"Observation:\n{RESULT}")],
    ),
    "ReAct with brackets": Case(said("Action 1: count[seats]"), [said("-"), user(f"Observation 1: {RESULT}")]),
    "ReAct in bold": Case(
        said("**Action:** `count`\n**Action Input:** seats"), [said("-"), user(f"**Observation:** {RESULT}")]
    ),
    "an action as JSON": Case(said(f"Action:\n```json\n{BLOB}\n```"), [said("-"), user(f"Observation: {RESULT}")]),
    "an answer that is JSON": Case(said(BLOB), [said(BLOB), user(f"Tool result: {RESULT}")]),
    "smolagents": Case(API, [said(CALLING), user(f"Call id: call_7\nObservation:\n{RESULT}")]),
    "smolagents without an id": Case(API, [said(CALLING), user(f"Observation:\n{RESULT}")]),
    "smolagents with an error": Case(
        API,
        [said(CALLING), user("Call id: call_7\nError:\nno hall\nNow let's retry: take care.")],
        [("count", "error", "no hall\nNow let's retry: take care.")],
    ),
    "smolagents with two calls": Case(
        TWO,
        [said(CALLING), user("Call id: call_8\nObservation:\n3"), user(f"Call id: call_7\nObservation:\n{RESULT}")],
        [("count", "ok", RESULT), ("count", "ok", "3")],
    ),
    "smolagents that writes the call": Case(
        said("I count."), [said("I count."), said(CALLING), user(f"Call id: call_7\nObservation:\n{RESULT}")]
    ),
    "code": Case(
        said(CODE),
        [said(CODE), user(f"Observation:\nExecution logs:\n{RESULT}\nLast output from code snippet:\nNone")],
        [("count", "ok", f"Execution logs:\n{RESULT}\nLast output from code snippet:\nNone")],
    ),
    "tags": Case(said(HERMES), [said(HERMES), user(f"<tool_response>\n{RESULT}\n</tool_response>")]),
    "two tags": Case(
        said(HERMES + HERMES.replace("seats", "rows")),
        [said(HERMES), user(f"<tool_response>{RESULT}</tool_response>\n<tool_response>3</tool_response>")],
        [("count", "ok", RESULT), ("count", "ok", "3")],
    ),
    "a sentence": Case(API, [API, user(f"Tool `count` returned: {RESULT}")]),
    "a sentence about the result": Case(API, [API, user(f"Result of count: {RESULT}")]),
    "a sentence about another tool": Case(API, [API, user(f"Tool `price` returned: {RESULT}")], NO_RESULT),
    "one result for two calls": Case(TWO, [said(CALLING), user(f"Observation: {RESULT}")], NO_RESULT),
    "a text that names no call": Case(
        said("Shall I count?"), [said("Shall I count?"), user("Observation: you may")], NO_RESULT
    ),
    "a user's own words": Case(said(REACT), [said(REACT), user("Go on.")], NO_RESULT),
    "code with two functions": Case(
        said("```py\nprint(count('seats'), price('seat'))\n```"), [said("-"), user("Observation: 9 2")], NO_RESULT
    ),
}


def results_of(world: World) -> list[tuple[str, str, str]]:
    step = world.convert().transitions.sort("started_at").row(0, named=True)
    found: list[dict[str, Any]] = json.loads(step["tool_results"])
    assert step["tool_error_count"] == sum(result["status"] == "error" for result in found)
    return [(result["name"], result["status"], result["content"]) for result in found]


@pytest.mark.parametrize("dialect", ["otel_genai", "openinference"])
@pytest.mark.parametrize("name", CASES)
def test_a_result_in_a_users_message_is_the_calls(name: str, dialect: str) -> None:
    case, world, trace = CASES[name], World(), trace_id(name)
    call_in(world, dialect, OPENING, case.said, trace=trace)
    call_in(world, dialect, [*OPENING, *case.shown], said("Done."), trace=trace)
    assert results_of(world) == list(case.results)


@pytest.mark.parametrize("written", [REACT, f"Action:\n```json\n{BLOB}\n```", "Action: count[seats]"])
def test_a_prompt_that_grows_holds_the_result_behind_the_models_words(written: str) -> None:
    world, trace = World(), trace_id("scratchpad")
    prompt = "Answer with Thought, Action, Action Input and Observation.\nQuestion: how many?\n"
    world.call([user(prompt)], said(written), trace=trace, tools=[])
    world.call([user(f"{prompt}{written}\nObservation: {RESULT}\nThought:")], said("Done."), trace=trace, tools=[])
    assert results_of(world) == [("count", "ok", RESULT)]


def test_the_failure_is_the_steps_and_the_text_stays_the_action() -> None:
    world, trace = World(), trace_id("failure")
    world.call(OPENING, said(REACT), trace=trace, tools=[])
    world.call([*OPENING, said(REACT), user(f"Observation: {BROKEN}")], said("Closed."), trace=trace, tools=[])
    converted = world.convert()
    failure = converted.failures.row(0, named=True)
    assert (failure["tool_name"], failure["step"], converted.failures.height) == ("count", 0, 1)
    action = json.loads(converted.transitions.sort("step")["action"][0])
    assert action["parts"] == [{"type": "text", "content": REACT}]


def test_a_tools_span_comes_first() -> None:
    world, trace = World(), trace_id("span")
    world.call(OPENING, API, trace=trace, tools=[])
    world.tool("call_7", "9", trace=trace, name="count")
    world.call([*OPENING, API, user(f"Observation: {RESULT}")], said("Done."), trace=trace, tools=[])
    assert results_of(world) == [("count", "ok", "9")]
