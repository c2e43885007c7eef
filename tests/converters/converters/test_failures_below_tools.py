"""A failed request below a tool's span tells why the tool failed; JSON may spell the words of an error by number."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from .converters_world import OPENING, World, answers, asks, text, trace_id
from .test_failure_kinds import TOOLS, called, verdicts_by_trace

VAGUE = "Error: the lookup did not work out"
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


class Below(NamedTuple):
    """A span below a tool's: its attributes, status message and exception."""

    attributes: dict[str, Any]
    error: str = ""
    exception: tuple[str, str] | None = None


def case(world: World, name: str, shown: str, below: Sequence[Below], *, is_nested: bool = False) -> str:
    """An episode whose tool was shown to answer ``shown``, with spans below the tool's."""
    trace, opening = trace_id(name), [text("system", name), *OPENING]
    said = asks(name)
    world.call(opening, said, trace=trace)
    parent = world.span("tool", {**TOOL, "gen_ai.tool.call.id": name}, trace=trace)
    parent = world.span("client", {}, trace=trace, parent=parent) if is_nested else parent
    for span in below:
        world.span("GET", span.attributes, trace=trace, parent=parent, error=span.error, exception=span.exception)
    world.call([*opening, said, answers(name, shown)], text("assistant", "It rains."), trace=trace)
    world.score(0.0, trace_id=trace)
    return trace


BELOW: dict[str, tuple[Below, tuple[str, str]]] = {
    "status code": (Below({"error.type": "503"}, "x"), ("server_error", "environment")),
    "quota": (Below({"error.type": "429"}, "x"), ("rate_limit", "environment")),
    "status message": (Below({}, "connection refused by 10.0.0.1"), ("connection_error", "environment")),
    "exception type": (Below({}, "", ("httpx.ReadTimeout", "")), ("timeout", "environment")),
    "exception message": (Below({}, "", ("Error", "read timed out")), ("timeout", "environment")),
    "a status of the request": (Below({"error.type": "404"}, "x"), ("tool_error", "unknown")),
    "nothing telling": (Below({}, "x"), ("tool_error", "unknown")),
}


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_failed_request_below_a_tool_tells_why_it_failed(*, is_nested: bool) -> None:
    world = World()
    traces = [case(world, name, VAGUE, [below], is_nested=is_nested) for name, (below, _) in BELOW.items()]
    found = verdicts_by_trace(world.convert(), traces)
    assert dict(zip(BELOW, found, strict=True)) == {name: [verdict] for name, (_, verdict) in BELOW.items()}


def test_what_did_not_fail_below_a_tool_or_failed_without_harm_explains_nothing() -> None:
    world, outage = World(), Below({"error.type": "503"}, "service unavailable")
    traces = [
        case(world, "worked", VAGUE, [Below({}, "", ("httpx.ReadTimeout", "retrying"))]),
        case(world, "harmless", "rain", [outage]),
    ]
    for span in world.spans:
        span["StatusCode"] = "Ok" if span["Events.Name"] else span["StatusCode"]
    worked, harmless = verdicts_by_trace(world.convert(), traces)
    assert worked == [("tool_error", "unknown")]
    assert harmless == [("wrong_answer", "policy")]


def test_a_failed_request_below_one_tool_explains_no_other() -> None:
    world, trace = World(), trace_id("t")
    said = asks("one")
    said["parts"].append(asks("two")["parts"][0])
    world.call(OPENING, said, trace=trace)
    for identity in ("one", "two"):
        tool = world.span("tool", {**TOOL, "gen_ai.tool.call.id": identity}, trace=trace)
        if identity == "one":
            world.span("GET", {"error.type": "503"}, trace=trace, parent=tool, error="x")
    shown = [answers("one", VAGUE), answers("two", VAGUE)]
    world.call([*OPENING, said, *shown], text("assistant", "It rains."), trace=trace)
    world.score(0.0, trace_id=trace)
    (found,) = verdicts_by_trace(world.convert(), [trace])
    assert sorted(found) == [("server_error", "environment"), ("tool_error", "unknown")]


def test_a_tool_that_another_tool_called_answers_for_its_own_requests() -> None:
    """The outer tool's answer is vague; the request failed within the inner one, which is a call of its own."""
    world, trace = World(), trace_id("t")
    said = asks("one")
    world.call(OPENING, said, trace=trace)
    outer = world.span("tool", {**TOOL, "gen_ai.tool.call.id": "one"}, trace=trace)
    inner = world.span("tool", {**TOOL, "gen_ai.tool.name": "fetch"}, trace=trace, parent=outer)
    world.span("GET", {"error.type": "503"}, trace=trace, parent=inner, error="x")
    world.call([*OPENING, said, answers("one", VAGUE)], text("assistant", "It rains."), trace=trace)
    world.score(0.0, trace_id=trace)
    (found,) = verdicts_by_trace(world.convert(), [trace])
    assert found == [("tool_error", "unknown")]


FOREIGN = [
    said
    for kind in TOOLS.values()
    if "name" not in kind and "arguments" not in kind
    for said in kind["texts"]
    if not said.isascii()
]


@pytest.mark.parametrize("key", ["error", "message"])
def test_how_json_spells_its_letters_changes_no_verdict(key: str) -> None:
    """``\\u8d85\\u65f6`` is what many servers write for two of them."""
    by_number = [json.dumps({"ok": False, key: said}) for said in FOREIGN]
    as_letters = [json.dumps({"ok": False, key: said}, ensure_ascii=False) for said in FOREIGN]
    assert all("\\u" in content for content in by_number)
    found = called({}, by_number)
    assert found == called({}, as_letters)
    assert {owner for ((_, owner),) in found} >= {"environment", "tool"}


def test_a_text_with_the_number_of_a_letter_that_is_no_json_is_read_as_it_is() -> None:
    assert called({}, ["[\\u8bf7 Error: read timed out"]) == [[("timeout", "environment")]]
