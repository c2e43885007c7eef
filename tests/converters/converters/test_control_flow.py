"""Exceptions that steer a program and that tracers record as errors: pauses, hand-overs, the end of an iterator."""

from typing import Any

import polars as pl
import pytest

from .converters_world import OPENING, Message, World, answers, asks, text, trace_id
from .dialect_calls import DIALECTS, call_in

TRACE = trace_id("control flow")
in_each_dialect = pytest.mark.parametrize("dialect", DIALECTS)

TOOL_SPANS: dict[str, dict[str, Any]] = {
    "otel_genai": {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "wire"},
    "openinference": {"openinference.span.kind": "TOOL", "tool.name": "wire"},
    "traceloop": {"traceloop.span.kind": "tool", "traceloop.entity.name": "wire"},
}
AGENT_SPANS: dict[str, dict[str, Any]] = {
    "otel_genai": {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"},
    "openinference": {"openinference.span.kind": "AGENT", "agent.name": "clerk"},
    "traceloop": {"traceloop.span.kind": "agent", "traceloop.entity.name": "clerk"},
}
RESULTS = {
    "otel_genai": "gen_ai.tool.call.result",
    "openinference": "output.value",
    "traceloop": "traceloop.entity.output",
}
_RESULTS = pl.List(pl.Struct(dict.fromkeys(("status", "content", "span_id"), pl.String)))
ASK = asks("c1", "wire", {"amount": 25})
PAUSES = [
    ("langgraph.errors.NodeInterrupt", "approve?"),
    ("app.workflow.WorkflowSuspended", ""),
    ("flows.HumanFeedbackPending", "waiting for feedback"),
    ("tools.ToolApprovalRequired", ""),
    ("com.example.agents.PauseException", ""),
    ("jobs.DeferredToolCall", "queued"),
    ("graph.errors.AgentHandoff", "billing"),
    ("RequiresHumanApproval", ""),
]


def tool(world: World, dialect: str, *, result: str = "", **where: Any) -> str:
    values = TOOL_SPANS[dialect] | ({RESULTS[dialect]: result} if result else {})
    return world.span("wire", values, trace=TRACE, **where)


@in_each_dialect
@pytest.mark.parametrize("raised", PAUSES, ids=lambda raised: raised[0])
def test_a_tool_that_pauses_waits_and_has_not_failed(dialect: str, raised: tuple[str, str]) -> None:
    world = World()
    call_in(world, dialect, OPENING, ASK, trace=TRACE)
    tool(world, dialect, exception=raised, error=f"{raised[0].rpartition('.')[2]}: {raised[1]}")
    found = world.convert()
    assert found.failures.is_empty()
    assert found.episodes.select("outcome", "is_truncated", "tool_error_count").rows() == [("unknown", True, 0)]


@in_each_dialect
def test_a_pause_that_only_the_status_names_has_not_failed(dialect: str) -> None:
    world = World()
    call_in(world, dialect, OPENING, ASK, trace=TRACE)
    outer = world.span("node", AGENT_SPANS[dialect], trace=TRACE, error="ApprovalRequired: sign here")
    tool(world, dialect, error="ApprovalRequired: sign here", parent=outer)
    assert world.convert().failures.is_empty()


@in_each_dialect
def test_the_run_that_answers_after_a_pause_gives_the_result(dialect: str) -> None:
    world = World()
    call_in(world, dialect, OPENING, ASK, trace=TRACE)
    tool(world, dialect, exception=("agents.SuspendExecution", "manager"))
    answered = tool(world, dialect, result="wired 25")
    seen: list[Message] = [*OPENING, ASK, answers("c1", "wired 25")]
    call_in(world, dialect, seen, text("assistant", "Done."), trace=TRACE)
    found = world.convert()
    assert found.failures.is_empty()
    [result] = found.transitions.sort("step")["tool_results"].str.json_decode(dtype=_RESULTS)[0]
    assert (result["status"], result["content"], result["span_id"]) == ("ok", "wired 25", answered)


@in_each_dialect
@pytest.mark.parametrize(
    "raised",
    [
        ("StopAsyncIteration", ""),
        ("SystemExit", "0"),
        ("SystemExit", "None"),
        ("click.exceptions.Exit", "0"),
        ("GeneratorExit", ""),
        ("asyncio.exceptions.CancelledError", ""),
        ("kotlinx.coroutines.CancellationException", ""),
    ],
)
def test_a_run_that_ends_after_its_answer_has_not_failed(dialect: str, raised: tuple[str, str]) -> None:
    world = World()
    agent = "00000000000000aa"
    call_in(world, dialect, OPENING, text("assistant", "It rains."), trace=TRACE, parent=agent)
    world.span("clerk", AGENT_SPANS[dialect], trace=TRACE, span_id=agent, start_s=-1, duration_s=9, exception=raised)
    found = world.convert()
    assert found.failures.is_empty()
    assert found.episodes["is_terminated"].to_list() == [True]


@pytest.mark.parametrize(
    ("raised", "error_class"),
    [
        (("GeneratorExit", ""), "cancelled"),
        (("asyncio.CancelledError", ""), "cancelled"),
        (("SystemExit", "1"), "harness_crash"),
        (("KeyboardInterrupt", ""), "cancelled"),
        (("InterruptedError", "EINTR"), "harness_crash"),
    ],
)
def test_a_run_that_is_stopped_in_mid_action_has_failed(raised: tuple[str, str], error_class: str) -> None:
    world = World()
    agent = "00000000000000aa"
    call_in(world, "otel_genai", OPENING, ASK, trace=TRACE, parent=agent)
    world.span(
        "clerk", AGENT_SPANS["otel_genai"], trace=TRACE, span_id=agent, start_s=-1, duration_s=9, exception=raised
    )
    assert world.convert().failures["error_class"].to_list() == [error_class]


def test_an_iterator_that_ends_within_a_tool_is_the_tools_mistake() -> None:
    world = World()
    call_in(world, "otel_genai", OPENING, ASK, trace=TRACE)
    tool(world, "otel_genai", exception=("StopIteration", ""))
    assert world.convert().failures["fault_owner"].to_list() == ["tool"]
