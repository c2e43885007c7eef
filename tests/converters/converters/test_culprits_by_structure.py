"""Whose mistake a tool call is, shown by its structure: offered tools, schemas, and where its values come from."""

import json
from typing import Any

import pytest

from .converters_world import Message, World, answers, asks, text, trace_id
from .dialect_calls import DIALECTS, call_in

TRACE = trace_id("structure")
TASK = [text("system", "You help."), text("user", "When does the Lisbon choir meet, and who leads it?")]
in_each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
DONE = text("assistant", "I cannot tell.")


def definitions(*tools: dict[str, Any]) -> dict[str, str]:
    return {"gen_ai.tool.definitions": json.dumps([{"type": "function", **tool} for tool in tools])}


def offered(name: str, required: tuple[str, ...] = ("name",), **properties: Any) -> dict[str, Any]:
    known = properties or {each: {"type": "string"} for each in required}
    return {"name": name, "parameters": {"type": "object", "properties": known, "required": list(required)}}


def run(
    name: str,
    arguments: Any,
    shown: str,
    *,
    tools: dict[str, str] | None = None,
    raised: tuple[str, str] | None = None,
    has_span: bool = True,
    reward: float | None = None,
    said: Message = DONE,
) -> list[tuple[Any, ...]]:
    """Class, owner and recovery of the failures of an agent that calls one tool and then answers."""
    world = World()
    ask = asks("c1", name, arguments)
    call_in(world, "otel_genai", TASK, ask, trace=TRACE, attributes=tools)
    if has_span:
        result = "" if raised else shown
        world.tool("c1", result, trace=TRACE, name=name, exception=raised)
    seen = [*TASK, ask, answers("c1", shown)]
    call_in(world, "otel_genai", seen, said, trace=TRACE, attributes=tools)
    if reward is not None:
        world.score(reward, trace_id=TRACE)
    return world.convert().failures.select("error_class", "fault_owner", "is_recovered").rows()


UNWORDED: dict[str, tuple[str, tuple[str, str]]] = {
    "rota": ("choir", ("LookupError", "the rota keeps silent about {!r}")),
    "ledger": ("account", ("com.acme.LedgerException", "{} draws a blank")),
    "atlas": ("place", ("AtlasFault", "<{}> lies off every map")),
    "herbarium": ("plant", ("Error", "nichts gepresst unter {}")),
}
"""Tools that nobody has written, in wordings that no pattern holds."""


@pytest.mark.parametrize("name", UNWORDED)
@pytest.mark.parametrize(
    ("value", "owner"), [("Zyrkhan guild", "policy"), ("Lisbon choir", "unknown")], ids=["made up", "given"]
)
def test_a_value_that_a_tool_lacks_is_the_policys_mistake_where_nobody_gave_it(
    name: str, value: str, owner: str
) -> None:
    argument, (kind, wording) = UNWORDED[name]
    message = wording.format(value)
    rows = run(name, {argument: value}, message, raised=(kind, message), tools=definitions(offered(name, (argument,))))
    assert [row[1] for row in rows] == [owner]


def test_a_value_out_of_an_earlier_result_was_given() -> None:
    world = World()
    first, second = asks("c1", "rota", {"choir": "Lisbon choir"}), asks("c2", "ledger", {"account": "QX-9917"})
    call_in(world, "otel_genai", TASK, first, trace=TRACE)
    world.tool("c1", "account QX-9917", trace=TRACE, name="rota")
    seen = [*TASK, first, answers("c1", "account QX-9917")]
    call_in(world, "otel_genai", seen, second, trace=TRACE)
    world.tool("c2", "", trace=TRACE, name="ledger", exception=("LedgerFault", "QX-9917 draws a blank"))
    assert world.convert().failures["fault_owner"].to_list() == ["unknown"]


@pytest.mark.parametrize("kind", ["ZeroDivisionError", "TypeError", "java.lang.NullPointerException"])
def test_a_mistake_in_the_tools_program_is_the_tools_whatever_value_it_names(kind: str) -> None:
    rows = run("rota", {"choir": "Lisbon choir"}, "boom", raised=(kind, "cannot divide for Lisbon choir"))
    assert [row[1] for row in rows] == ["tool"]


@pytest.mark.parametrize("answer", ["Rota here, nobody of that name serves us.", "57F", '{"note": "tool kaputt"}'])
@pytest.mark.parametrize("shape", ["function", "bare", "mcp"])
def test_a_tool_that_was_not_offered_is_the_policys_mistake_whatever_the_answer_says(answer: str, shape: str) -> None:
    tool = offered("rota", ("choir",))
    shapes = {
        "function": definitions(tool),
        "bare": {"gen_ai.tool.definitions": json.dumps([tool])},
        "mcp": {"gen_ai.tool.definitions": json.dumps([{"name": "rota", "inputSchema": tool["parameters"]}])},
    }
    rows = run("choirs", {"choir": "x"}, answer, tools=shapes[shape], has_span=False)
    assert [row[:2] for row in rows] == [("unknown_tool", "policy")]


def test_a_tool_that_ran_was_there_though_it_was_not_offered() -> None:
    assert run("choirs", {"choir": "x"}, "57F", tools=definitions(offered("rota"))) == []


@pytest.mark.parametrize("called", ["librarian", "ask_librarian", "transfer_to_librarian", "Librarian"])
def test_an_agent_that_is_used_as_a_tool_is_no_unknown_tool(called: str) -> None:
    world = World()
    ask, tools = asks("c1", called, {"task": "look it up"}), definitions(offered("rota"))
    call_in(world, "otel_genai", TASK, ask, trace=TRACE, attributes=tools)
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Librarian"}
    inner = world.span("invoke_agent Librarian", agent, trace=TRACE, duration_s=2)
    request = [text("system", "You look things up."), text("user", "look it up")]
    call_in(world, "otel_genai", request, text("assistant", "It is Ana."), trace=TRACE, parent=inner)
    seen = [*TASK, ask, answers("c1", "It is Ana.")]
    call_in(world, "otel_genai", seen, text("assistant", "Ana."), trace=TRACE, attributes=tools)
    assert world.convert().failures.is_empty()


def test_tools_behind_a_server_are_not_known() -> None:
    tools = {"gen_ai.tool.definitions": json.dumps([{"type": "mcp", "server_label": "docs"}, offered("rota")])}
    assert run("choirs", {"choir": "x"}, "57F", tools=tools, has_span=False) == []


BROKEN: list[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = [
    ({}, {"choir": {"type": "string"}}, ("choir",)),
    ({"size": "plenty"}, {"size": {"type": "integer"}}, ()),
    ({"voice": "kazoo"}, {"voice": {"type": "string", "enum": ["alto", "bass"]}}, ()),
    ({"names": "Ana"}, {"names": {"type": "array"}}, ()),
]


@pytest.mark.parametrize(("arguments", "properties", "required"), BROKEN)
@pytest.mark.parametrize("answer", ["Rota sulks.", "Error: service unavailable", "Error: boom"])
def test_arguments_that_break_the_schema_are_the_policys_mistake_whatever_the_answer_says(
    arguments: Any, properties: Any, required: tuple[str, ...], answer: str
) -> None:
    tools = definitions(offered("rota", required, **properties))
    rows = run("rota", arguments, answer, tools=tools, has_span=False)
    assert [row[:2] for row in rows] == [("invalid_arguments", "policy")]


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        ({"size": "12"}, {"size": {"type": "integer"}}),
        ({"choir": 12}, {"choir": {"type": "string"}}),
        ({"is_open": "true"}, {"is_open": {"type": "boolean"}}),
        ({"voice": "Alto"}, {"voice": {"type": "string", "enum": ["alto"]}}),
        ({"size": None}, {"size": {"type": "integer"}}),
    ],
)
def test_what_a_tool_can_convert_is_no_mistake_where_it_answered(arguments: Any, properties: Any) -> None:
    assert run("rota", arguments, "Tuesday", tools=definitions(offered("rota", (), **properties)), has_span=False) == []


@pytest.mark.parametrize("raised", ["httpx.ReadTimeout", "redis.exceptions.ConnectionError"])
def test_a_fault_of_the_environment_by_its_type_is_no_mistake_of_the_policy(raised: str) -> None:
    rows = run("rota", {}, "x", raised=(raised, ""), tools=definitions(offered("rota", ("choir",))))
    assert [row[1] for row in rows] == ["environment"]


@in_each_dialect
@pytest.mark.parametrize("arguments", ["", "   ", "\n"])
def test_no_arguments_in_white_space_are_no_mistake_where_the_tool_answered(dialect: str, arguments: str) -> None:
    world = World()
    ask = asks("c1", "rooms", arguments)
    call_in(world, dialect, TASK, ask, trace=TRACE)
    world.tool("c1", "kitchen, hall", trace=TRACE, name="rooms")
    call_in(world, dialect, [*TASK, ask, answers("c1", "kitchen, hall")], text("assistant", "Two."), trace=TRACE)
    assert world.convert().failures.is_empty()
