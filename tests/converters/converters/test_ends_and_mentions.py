"""Ends that are not recorded, failures that are told twice, and words of failures that tell of none."""

import json
from typing import Any

import pytest

from spanloop.converters.errors.error_texts import error_in_text

from .converters_world import OPENING, Message, World, answers, asks, text, trace_id
from .dialect_calls import DIALECTS, call_in

TRACE = trace_id("ends")
in_each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
FINISH: dict[str, dict[str, Any]] = {
    "otel_genai": {"gen_ai.response.finish_reasons": ["stop"]},
    "openinference": {"llm.finish_reason": "stop"},
    "traceloop": {"gen_ai.response.finish_reasons": ["stop"]},
}
ASK = asks("c1", "find", {"x": 1})


@in_each_dialect
def test_an_unrecorded_answer_that_ended_by_itself_is_an_end(dialect: str) -> None:
    world = World()
    call_in(world, dialect, OPENING, ASK, trace=TRACE)
    seen = [*OPENING, ASK, answers("c1", "Error: boom")]
    call_in(world, dialect, seen, None, trace=TRACE, attributes=FINISH[dialect])
    found = world.convert()
    assert found.episodes.select("is_terminated", "outcome").rows() == [(True, "unknown")]
    assert found.failures["is_recovered"].to_list() == [True]


def test_an_unrecorded_answer_that_was_cut_or_failed_is_no_end() -> None:
    for attributes, error in (
        ({"gen_ai.response.finish_reasons": ["length"]}, ""),
        ({}, ""),
        (FINISH["otel_genai"], "x"),
    ):
        world = World()
        call_in(world, "otel_genai", OPENING, None, trace=TRACE, attributes=attributes, error=error)
        assert world.convert().episodes["is_terminated"].to_list() == [False]


def stream(world: World, seen: list[Message], said: Message, *, finish: str = "") -> str:
    answer = {**said, "finish_reason": finish} if finish else said
    own = {"gen_ai.is_streaming": "true", "gen_ai.response.finish_reasons": [finish] if finish else []}
    values = {**own, "gen_ai.output.messages": json.dumps([answer])}
    return world.call(seen, said, trace=TRACE, tools=(), attributes=values)


@pytest.mark.parametrize("said", [text("assistant", "It rains."), ASK], ids=["words", "a call"])
def test_a_stream_whose_answer_the_next_call_was_sent_is_whole(said: Message) -> None:
    world = World()
    stream(world, [*OPENING], said)
    after = answers("c1", "rain") if said is ASK else text("user", "And now?")
    stream(world, [*OPENING, said, after], text("assistant", "Still."), finish="stop")
    found = world.convert()
    assert found.failures.is_empty()
    assert found.transitions["is_trainable"].to_list() == [True, True]


def test_a_stream_whose_answer_no_call_was_sent_is_not_whole() -> None:
    world = World()
    stream(world, [*OPENING], text("assistant", "It ra"))
    stream(
        world,
        [*OPENING, text("assistant", "It rains."), text("user", "And?")],
        text("assistant", "Yes."),
        finish="stop",
    )
    assert world.convert().failures["error_class"].to_list() == ["incomplete_stream"]


@pytest.mark.parametrize(
    "wrapper",
    [
        {"openinference.span.kind": "CHAIN"},
        {"traceloop.span.kind": "task", "traceloop.entity.name": "step"},
        {"langfuse.observation.type": "span"},
        {},
    ],
)
@pytest.mark.parametrize(
    ("error", "exception"),
    [("step failed", None), ("boom", ("app.Boom", "boom")), ("", ("app.Boom", "could not go on"))],
)
def test_a_span_around_a_tool_that_says_it_failed_is_no_second_failure(
    wrapper: dict[str, str], error: str, exception: tuple[str, str] | None
) -> None:
    world = World()
    call_in(world, "otel_genai", OPENING, ASK, trace=TRACE)
    outer = world.span("step", wrapper, trace=TRACE, error=error, exception=exception, duration_s=2)
    world.tool("c1", "", trace=TRACE, name="find", parent=outer, exception=("other.Boom", "boom"))
    call_in(world, "otel_genai", [*OPENING, ASK, answers("c1", "boom")], text("assistant", "Sorry."), trace=TRACE)
    assert world.convert().failures["tool_name"].to_list() == ["find"]


def test_a_span_around_a_tool_that_raises_something_else_is_a_second_failure() -> None:
    world = World()
    call_in(world, "otel_genai", OPENING, ASK, trace=TRACE)
    outer = world.span("step", {}, trace=TRACE, exception=("KeyError", "'state'"), duration_s=2)
    world.tool("c1", "", trace=TRACE, name="find", parent=outer, exception=("other.Boom", "boom"))
    assert sorted(world.convert().failures["fault_owner"].to_list()) == ["harness", "tool"]


HAND_OVERS: list[tuple[dict[str, str], str]] = [
    ({"openinference.span.kind": "TOOL"}, "handoff to Accounts"),
    ({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "handoff"}, "handoff"),
    ({"traceloop.span.kind": "tool", "traceloop.entity.name": "hand_over_to_accounts"}, "hand over"),
]


@pytest.mark.parametrize(("attributes", "name"), HAND_OVERS)
def test_several_hand_overs_at_once_break_no_tool(attributes: dict[str, str], name: str) -> None:
    world = World()
    first, second = (asks(f"c{number}", f"handoff_to_{who}", {}) for number, who in enumerate(("accounts", "repair")))
    ask = {"role": "assistant", "parts": [*first["parts"], *second["parts"]]}
    call_in(world, "otel_genai", OPENING, ask, trace=TRACE)
    world.span(name, attributes, trace=TRACE, error="more than one agent was asked for")
    call_in(world, "otel_genai", OPENING, text("assistant", "Corrected."), trace=TRACE)
    assert set(world.convert().failures["fault_owner"].to_list()) <= {"policy"}


@pytest.mark.parametrize(
    "content",
    [
        "No errors found.",
        "lint: no errors, 3 warnings",
        "Failure count: 0",
        "error count = 0",
        "Timed out: 0",
        "Rate limit exceeded: 0 times",
        "Access denied events: none",
        "Fehler: keine",
        "Ticket 52: permission denied on the printer",
        'TITLE: "Connection refused" after the update',
        'Issue #7 "Internal server error at checkout" is open',
        'The customer says "access denied" when she logs in.',
        '{"result": "Ticket 52: permission denied on the printer"}',
        '{"errors": 0, "checked": 12}',
        '{"errors": 3, "passed": 9}',
        '{"error": "none", "rows": 2}',
        "Never timed out this month.",
        "Error handling is described in chapter 3",
    ],
)
def test_denied_counted_and_quoted_words_are_no_failure(content: str) -> None:
    assert error_in_text(content) is None


@pytest.mark.parametrize(
    "content",
    [
        "ORA-00942: table or view does not exist",
        "[ORA-01017] invalid username/password; logon denied",
        "SQLSTATE[42S02]: Base table or view not found",
        "Error: no connection to server",
        "Error: 0 rows could be parsed",
        "Tool error: 'permission denied'",
        "permission denied",
        "No response from server",
        '{"errors": ["timed out"]}',
        '{"error": 5}',
    ],
)
def test_a_failure_that_denies_or_quotes_something_else_is_one(content: str) -> None:
    assert error_in_text(content) is not None


@pytest.mark.parametrize("message", ["ORA-00942: table or view does not exist", 'relation "orders" does not exist'])
def test_a_query_that_the_database_refuses_is_the_policys_code(message: str) -> None:
    world = World()
    call_in(world, "otel_genai", OPENING, asks("c1", "run_sql", {"query": "select 1", "sql": "select 1"}), trace=TRACE)
    world.tool("c1", "", trace=TRACE, name="run_sql", exception=("DatabaseError", message))
    assert world.convert().failures.select("error_class", "fault_owner").rows() == [("invalid_code", "policy")]
