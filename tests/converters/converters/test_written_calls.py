"""Tool calls in a model's text are told by the tools' spans; the text stays the action."""

import json
from typing import Any

import pytest

from .converters_world import World, asks, text, trace_id

TRACE = trace_id("run")
QUESTION = text("user", "The weather of Oslo?")
WRITTEN = 'next_tool_name: get_weather\nnext_tool_args: {"city": "Oslo", "days": 2}'
ARGUMENTS = '{"city": "Oslo", "days": 2}'


def tool(world: World, *, name: str = "get_weather", arguments: str = ARGUMENTS, error: str = "") -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": arguments,
        "gen_ai.tool.call.result": "" if error else "7 degrees",
    }
    exception = ("ValueError", error) if error else None
    world.span(f"execute_tool {name}", attributes, trace=TRACE, exception=exception)


def steps(world: World) -> list[dict[str, Any]]:
    return world.convert().transitions.sort("started_at").to_dicts()


def results(world: World) -> list[list[tuple[str, str, str]]]:
    """Name, status and content of each step's results."""
    told = [json.loads(step["tool_results"]) for step in steps(world)]
    return [[(one["name"], one["status"], one["content"]) for one in step] for step in told]


def run(said: str = WRITTEN, **of_tool: Any) -> World:
    world = World()
    world.call([QUESTION], text("assistant", said), trace=TRACE, tools=())
    tool(world, **of_tool)
    world.call([text("user", "The weather of Oslo? 7 degrees")], text("assistant", "7"), trace=TRACE, tools=())
    return world


def test_a_tool_that_the_text_asks_for_is_the_steps_and_the_text_stays() -> None:
    first, _ = steps(run())
    assert results(run()) == [[("get_weather", "ok", "7 degrees")], []]
    assert json.loads(first["action"])["parts"] == [{"type": "text", "content": WRITTEN}]


def test_a_value_may_be_written_as_json() -> None:
    arguments = json.dumps({"text": 'He said "so".\nTwice.'})
    written = run(f"next_tool_name: get_weather\nnext_tool_args: {arguments}", arguments=arguments)
    assert len(results(written)[0]) == 1


def test_its_error_is_the_steps() -> None:
    first, _ = steps(run(error="no such city"))
    assert results(run(error="no such city"))[0] == [("get_weather", "error", "no such city")]
    assert (first["tool_error_count"], first["error_class"]) == (1, "tool_error")


def test_each_call_goes_to_the_newest_text_that_asks_for_it() -> None:
    world = World()
    for number in range(2):
        world.call([text("user", f"Question {number}")], text("assistant", WRITTEN), trace=TRACE, tools=())
        tool(world)
    assert [len(step) for step in results(world)] == [1, 1]


@pytest.mark.parametrize(
    ("said", "of_tool"),
    [
        (WRITTEN, {"name": "get_weather_2"}),
        (WRITTEN, {"name": "weather"}),
        (WRITTEN, {"arguments": '{"city": "Rome"}'}),
        ("I answer without a tool.", {}),
    ],
    ids=["a longer name", "a shorter name", "other arguments", "no name"],
)
def test_a_text_that_does_not_ask_for_the_tool_has_no_result(said: str, of_tool: dict[str, str]) -> None:
    assert results(run(said, **of_tool)) == [[], []]


def test_where_an_api_has_tool_calls_a_text_is_none() -> None:
    world = run()
    world.call([text("user", "And Rome?")], asks("call_1"), trace=TRACE)
    assert results(world)[0] == []
    offered = World()
    offered.call([QUESTION], text("assistant", WRITTEN), trace=TRACE)
    tool(offered)
    assert results(offered) == [[]]
