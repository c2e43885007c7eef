"""A prompt that is an earlier one with a tool's result written into it continues that one, within a trace."""

import json
from collections.abc import Sequence

import polars as pl
import pytest

from spanloop.converters import Converted

from .converters_world import World, answers, asks, text, trace_id

TRACE = trace_id("run")
QUESTION = "Task: the weather of Oslo"
TAIL = "\nSay what comes next."
ERROR = "ValueError: no such city: Atlantis"


def convert(prompts: Sequence[str], *, result: str = "7 degrees", error: str = "", trace: str = TRACE) -> Converted:
    """A run whose calls see one prompt each, with a tool call between every two."""
    world = World()
    for number, prompt in enumerate(prompts):
        if number:
            exception = ("ValueError", error) if error else None
            world.tool("other_id", "" if error else result, trace=trace, exception=exception)
        seen = [text("system", "Be brief."), text("user", prompt)]
        world.call(seen, asks(f"call_{number}"), trace=TRACE)
    return world.convert()


def links(converted: Converted) -> list[str]:
    """The last user message of each step's next state."""
    rows = converted.transitions.sort("started_at")["next_state"].to_list()
    return [json.loads(state)[-1]["parts"][0]["content"] if state else "" for state in rows]


@pytest.mark.parametrize("tail", ["", TAIL], ids=["appended", "inserted"])
def test_each_prompt_continues_the_one_that_it_holds(tail: str) -> None:
    prompts = [
        QUESTION + tail,
        f"{QUESTION}\nOslo: 7 degrees{tail}",
        f"{QUESTION}\nOslo: 7 degrees\nAlso: 7 degrees{tail}",
    ]
    assert links(convert(prompts)) == [*prompts[1:], ""]


def test_the_error_of_a_tool_is_its_result() -> None:
    prompts = [QUESTION, f"{QUESTION}\nError: {ERROR}"]
    assert links(convert(prompts, error="no such city: Atlantis")) == [prompts[1], ""]


@pytest.mark.parametrize(
    ("second", "trace"),
    [
        (f"{QUESTION}\nOslo: 8 degrees", TRACE),
        (f"Another task.{TAIL}\n7 degrees", TRACE),
        (QUESTION, TRACE),
        (f"{QUESTION}\nOslo: 7 degrees", trace_id("elsewhere")),
    ],
    ids=["another_result", "another_prompt", "nothing_inserted", "a_tool_of_another_trace"],
)
def test_without_evidence_calls_stay_apart(second: str, trace: str) -> None:
    """Such steps have no next state of each other; equal prompts are one conversation already."""
    got = links(convert([QUESTION, second], trace=trace))
    assert got == (["", ""] if second != QUESTION else [QUESTION, ""])


def test_what_goes_on_with_messages_belongs_to_the_conversation_that_was_rewritten() -> None:
    """smolagents: the failed call is gone from the history, and the steps after it have messages again."""
    world = World()
    opening, rewritten = text("user", QUESTION), text("user", f"{QUESTION}\nError: {ERROR}")
    world.call([opening], asks("call_1"), trace=TRACE)
    world.tool("call_1", "", trace=TRACE, exception=("ValueError", "no such city: Atlantis"))
    world.call([rewritten], asks("call_2"), trace=TRACE)
    world.tool("call_2", "7 degrees", trace=TRACE)
    told = text("assistant", "Calling tools: search")
    world.call([rewritten, told, text("user", "Observation: 7 degrees")], text("assistant", "Done."), trace=TRACE)
    converted = world.convert()
    assert [bool(state) for state in links(converted)] == [True, True, False]
    results = [json.loads(row) for row in converted.transitions.sort("started_at")["tool_results"].to_list()]
    assert [result["status"] for step in results for result in step] == ["error", "ok"]


def test_many_prompts_with_many_tools_are_linked_in_the_order_of_time() -> None:
    steps = [f"{QUESTION}{''.join(f'{chr(10)}{n}: 7 degrees' for n in range(count))}{TAIL}" for count in range(40)]
    converted = convert(steps)
    assert links(converted) == [*steps[1:], ""]
    assert converted.transitions.select(pl.col("step").sort())["step"].to_list() == list(range(40))


def test_a_history_of_messages_is_linked_as_before() -> None:
    world = World()
    first = [text("system", "Be brief."), text("user", QUESTION)]
    world.call(first, asks("call_1"), trace=TRACE)
    world.tool("call_1", "7 degrees", trace=TRACE)
    world.call([*first, asks("call_1"), answers("call_1", "7 degrees")], text("assistant", "7 degrees"), trace=TRACE)
    states = world.convert().transitions.sort("started_at")["next_state"].to_list()
    assert [len(json.loads(state)) if state else 0 for state in states] == [4, 0]
