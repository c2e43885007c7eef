"""Which span and which message belongs to which tool call of an action: by id, by name, by order."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from .converters_world import OPENING, Message, World, answers, asks, text

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}


class Ran(NamedTuple):
    """A tool's span: its label, what it answered, the id it was given, and the span (by label) that it lies in."""

    label: str
    result: str = ""
    identity: str = ""
    name: str = "search"
    above: str = ""
    error: str = ""


class Result(NamedTuple):
    """A tool's result as a transition tells it; ``span`` is the label of the tool's span."""

    content: str
    span: str = ""
    status: str = "ok"


class Case(NamedTuple):
    """The calls (id, tool) of an action, the spans below it, what the next call was shown, and what comes of it."""

    calls: Sequence[tuple[str, str]]
    ran: Sequence[Ran]
    shown: Sequence[Message]
    expected: Sequence[Result]
    keeps_history: bool = True


def shown(*told: tuple[str, str]) -> list[Message]:
    return [answers(identity, content) for identity, content in told]


FAILED_IN_MESSAGE: Message = {
    "role": "tool",
    "parts": [{"type": "tool_call_response", "id": "a", "response": "12 rows", "is_error": True}],
}
TWO = (("a", "search"), ("b", "search"))

CASES = {
    "ids agree in another order": Case(
        TWO, [Ran("one", "y", "b"), Ran("two", "x", "a")], [], [Result("x", "two"), Result("y", "one")]
    ),
    "ids of the framework's own: names in order": Case(
        (("a", "search"), ("b", "fetch"), ("c", "search")),
        [Ran("one", "x", "run-1"), Ran("two", "y", "run-2"), Ran("three", "z", "run-3", "fetch")],
        [],
        [Result("x", "one"), Result("z", "three"), Result("y", "two")],
    ),
    "an id before a name": Case(
        TWO, [Ran("one", "x"), Ran("two", "y", "a")], [], [Result("y", "two"), Result("x", "one")]
    ),
    "a span of another tool": Case(TWO[:1], [Ran("one", "x", "", "fetch")], shown(("a", "z")), [Result("z")]),
    "a tool within itself is one call": Case(
        TWO,
        [Ran("outer", "", "a"), Ran("inner", "x", "", "server.search", "outer"), Ran("next", "y", "b")],
        [],
        [Result("x", "outer"), Result("y", "next")],
    ),
    "one within itself fails as a whole": Case(
        TWO[:1],
        [Ran("outer", "partly", "", "agent/search", "", "boom"), Ran("inner", "", "a", "search", "outer")],
        [],
        [Result("partly", "inner", "error")],
    ),
    "a tool in another that only ends alike is one of its own": Case(
        TWO, [Ran("outer", "x", "", "research"), Ran("inner", "y", "", "search", "outer")], [], [Result("y", "inner")]
    ),
    "the same tool of an agent behind it is another call": Case(
        TWO,
        [
            Ran("outer", "x"),
            Ran("within", "x", above="outer"),
            Ran("agent", name="", above="outer"),
            Ran("inner", "y", above="agent"),
        ],
        [],
        [Result("x", "outer"), Result("y", "inner")],
    ),
    "what the model was shown counts": Case(TWO[:1], [Ran("one", "raw", "a")], shown(("a", "x")), [Result("x", "one")]),
    "a failed span whatever was shown": Case(
        TWO[:1], [Ran("one", "", "a", error="boom")], shown(("a", "fine")), [Result("fine", "one", "error")]
    ),
    "a message that says it failed": Case(TWO[:1], [], [FAILED_IN_MESSAGE], [Result("12 rows", "", "error")]),
    "answers without ids in order": Case(TWO, [], shown(("", "x"), ("", "y")), [Result("x"), Result("y")]),
    "answers of which one has an id": Case(TWO, [], shown(("b", "y"), ("", "x")), [Result("x"), Result("y")]),
    "too few answers under other ids": Case(TWO, [], shown(("z", "x")), []),
    "an API that keeps the history": Case(TWO, [], shown(("b", "y"), ("a", "x")), [Result("x"), Result("y")], False),
    "nothing came back": Case(TWO, [], [], []),
}


def planted(world: World, trace: str, case: Case) -> dict[str, str]:
    """The episode of a case; span id → label."""
    opening = [text("system", trace), *OPENING]
    said = {"role": "assistant", "parts": [asks(identity, name)["parts"][0] for identity, name in case.calls]}
    own = {"spanloop.episode.id": trace}
    world.call(opening, said, trace=trace, attributes=own, tools=[])
    labels: dict[str, str] = {}
    for ran in case.ran:
        values = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": ran.name,
            "gen_ai.tool.call.id": ran.identity,
            "gen_ai.tool.call.result": ran.result,
        }
        told = values if ran.name else AGENT
        labels[ran.label] = world.span(ran.label, told, trace=trace, parent=labels.get(ran.above, ""), error=ran.error)
    seen = [*opening, said, *case.shown] if case.keeps_history else list(case.shown)
    world.call(seen, text("assistant", "It rains."), trace=trace, attributes=own, tools=[])
    return {span: label for label, span in labels.items()}


def test_every_call_has_the_result_that_is_its_own() -> None:
    world = World()
    traces = {f"{number + 1:032x}": name for number, name in enumerate(CASES)}
    labels = {trace: planted(world, trace, CASES[name]) for trace, name in traces.items()}
    rows: dict[str, list[Result]] = {}
    for trace, step, results in world.convert().transitions.select("trace_id", "step", "tool_results").iter_rows():
        if step == 0:
            told: list[dict[str, Any]] = json.loads(results)
            rows[traces[trace]] = [
                Result(one["content"], labels[trace].get(one["span_id"], ""), one["status"]) for one in told
            ]
    assert rows == {name: list(case.expected) for name, case in CASES.items()}
