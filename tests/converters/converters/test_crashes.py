"""Failed spans that are no call of the policy's: which of them is the failure, and what is said of it."""

import json
from typing import Any, NamedTuple

import pytest

from .converters_world import OPENING, World, text, trace_id

Json = dict[str, Any]
AGENT: Json = {"gen_ai.operation.name": "invoke_agent"}
TOOL: Json = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "lookup"}


class Node(NamedTuple):
    """A span of the tree: its name is its id, too."""

    name: str
    above: str = ""
    attributes: Json = {}  # noqa: RUF012 - never changed
    error: str = ""
    exception: tuple[str, str] | None = None


def crash(name: str, above: str = "", **told: Any) -> Node:
    return Node(name, above, **told)


BOOM = ("KeyError", "'state'")
NETWORK = ("ReadTimeout", "The read operation timed out")

TREES: dict[str, tuple[tuple[Node, ...], list[tuple[str, str, str, str]]]] = {
    "a span that says nothing": (
        (crash("run", attributes={"error.type": "error"}),),
        [("harness_crash", "harness", "run", "error")],
    ),
    "a span of which only the status tells": (
        (crash("run", exception=("", "")),),
        [("harness_crash", "harness", "run", "span 'run' failed")],
    ),
    "an error of its own above another": (
        (crash("run", exception=BOOM), crash("step", "run", exception=("OSError", "the table is read-only"))),
        [
            ("harness_crash", "harness", "run", "'state'"),
            ("harness_crash", "harness", "step", "the table is read-only"),
        ],
    ),
    "an error that the span right above repeats without words": (
        (crash("run", attributes={"error.type": "error"}), crash("step", "run", exception=BOOM)),
        [("harness_crash", "harness", "step", "'state'")],
    ),
    "an error far below one without words": (
        (
            crash("run", attributes={"error.type": "error"}),
            crash("between", "run"),
            crash("step", "between", exception=BOOM),
        ),
        [("harness_crash", "harness", "run", "error"), ("harness_crash", "harness", "step", "'state'")],
    ),
    "an error told once more in a span beside it": (
        (crash("run"), crash("step", "run", exception=BOOM), crash("step_error", "run", exception=BOOM)),
        [("harness_crash", "harness", "step", "'state'")],
    ),
    "an error in a span that is named like the error of one that worked": (
        (crash("run"), crash("step", "run"), crash("step_error", "run", exception=BOOM)),
        [("harness_crash", "harness", "step_error", "'state'")],
    ),
    "a tool that nobody asked for and that cannot read its data": (
        (crash("lookup", attributes=TOOL, exception=("OutputParserException", "Could not parse LLM output")),),
        [("tool_error", "tool", "lookup", "Could not parse LLM output")],
    ),
    "a request below such a tool": (
        (crash("lookup", attributes=TOOL, exception=NETWORK), crash("GET", "lookup", exception=NETWORK)),
        [("timeout", "environment", "lookup", NETWORK[1])],
    ),
    "a request below a tool within such a tool": (
        (
            crash("lookup", attributes=TOOL, exception=NETWORK),
            crash("fetch", "lookup", attributes={**TOOL, "gen_ai.tool.name": "fetch"}, exception=NETWORK),
            crash("GET", "fetch", exception=NETWORK),
        ),
        [("timeout", "environment", "lookup", NETWORK[1])],
    ),
    "a request below an agent": (
        (crash("agent", attributes=AGENT), crash("GET", "agent", exception=NETWORK)),
        [("timeout", "environment", "GET", NETWORK[1])],
    ),
    "somebody who stopped the program": (
        (crash("agent", attributes=AGENT, exception=("asyncio.CancelledError", "")),),
        [("cancelled", "user", "agent", "span 'agent' failed")],
    ),
}


def planted(world: World, name: str, nodes: tuple[Node, ...]) -> dict[str, str]:
    """The episode of ``name``: two model calls, then the tree; span id → name."""
    trace = trace_id(name)
    opening = [text("system", name), *OPENING]
    said = text("assistant", "I look it up.")
    world.call(opening, said, trace=trace)
    world.call([*opening, said, text("user", "And?")], text("assistant", "It rains."), trace=trace)
    ids: dict[str, str] = {}
    for number, node in enumerate(nodes):
        ids[node.name] = f"{hash((number, len(world.spans))) & 0xFFFF:016x}"
        world.span(
            node.name,
            node.attributes,
            trace=trace,
            span_id=ids[node.name],
            parent=ids.get(node.above, ""),
            error=node.error,
            exception=node.exception,
        )
    return {own: node for node, own in ids.items()}


def test_a_failure_is_the_innermost_span_that_tells_of_it() -> None:
    world = World()
    named = {trace_id(name): planted(world, name, nodes) for name, (nodes, _) in TREES.items()}
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in named}
    columns = ("trace_id", "error_class", "fault_owner", "span_id", "message")
    for trace, error_class, owner, span, message in world.convert().failures.select(columns).iter_rows():
        found[trace].append((error_class, owner, named[trace].get(span) or "", message))
    expected = {name: sorted(failures) for name, (_, failures) in TREES.items()}
    assert {name: sorted(found[trace_id(name)]) for name in TREES} == expected


def test_evidence_holds_what_a_span_says_and_nothing_empty() -> None:
    world = World()
    planted(world, "t", (crash("run", exception=("KeyError", "'state'")),))
    evidence = json.loads(world.convert().failures.item(0, "evidence"))
    assert {key: value for key, value in evidence.items() if key != "chain"} == {
        "span": "run",
        "exception.type": "KeyError",
    }


@pytest.mark.parametrize(("reward", "is_recovered"), [(None, True), (1.0, True), (0.0, False)])
def test_a_cut_answer_is_got_over_unless_the_reward_says_that_the_episode_failed(
    reward: float | None, *, is_recovered: bool
) -> None:
    world, trace = World(), trace_id("t")
    said = text("assistant", "It ra")
    world.call(OPENING, said, trace=trace, finish="length")
    world.call([*OPENING, said, text("user", "Go on.")], text("assistant", "It rains."), trace=trace)
    if reward is not None:
        world.score(reward, trace_id=trace)
    rows = world.convert().failures.select("error_class", "fault_owner", "is_recovered").rows()
    assert rows == [("truncated_output", "policy", is_recovered)]
