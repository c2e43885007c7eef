"""Parallel calls of one tool keep their results, however their tracer nests the spans and whatever their ids are."""

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from .converters_world import OPENING, Message, World, answers, text, trace_id

TRACE = trace_id("parallel")
BROKEN = "no reading for the second one"


class Run(NamedTuple):
    """One call of the tool as it ran."""

    arguments: dict[str, Any]
    result: str = ""
    identity: str = ""
    exception: str = ""


def otel(run: Run) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "measure",
        "gen_ai.tool.call.id": run.identity,
        "gen_ai.tool.call.arguments": json.dumps(run.arguments),
        "gen_ai.tool.call.result": run.result,
    }


def openinference(run: Run) -> dict[str, Any]:
    return {
        "openinference.span.kind": "TOOL",
        "tool.name": "measure",
        "tool_call.id": run.identity,
        "input.value": json.dumps({"args": [], "kwargs": run.arguments}),
        "output.value": run.result,
    }


def traceloop(run: Run) -> dict[str, Any]:
    return {
        "traceloop.span.kind": "tool",
        "traceloop.entity.name": "measure",
        "traceloop.entity.input": json.dumps({"args": [], "kwargs": run.arguments}),
        "traceloop.entity.output": run.result,
    }


def without_arguments(run: Run) -> dict[str, Any]:
    return {key: value for key, value in otel(run).items() if key != "gen_ai.tool.call.arguments"}


DIALECTS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "otel": otel,
    "openinference": openinference,
    "traceloop": traceloop,
}


def results(world: World) -> list[dict[str, Any]]:
    """Those of the first step."""
    converted = world.convert()
    step = converted.transitions.sort("step").row(0, named=True)
    found: list[dict[str, Any]] = json.loads(step["tool_results"])
    errors = [result for result in found if result["status"] == "error"]
    assert step["tool_error_count"] == len(errors) == converted.failures.height
    return found


def asks_for(runs: Sequence[Run], ids: Sequence[str]) -> Message:
    parts = [
        {"type": "tool_call", "id": identity, "name": "measure", "arguments": run.arguments}
        for run, identity in zip(runs, ids, strict=True)
    ]
    return {"role": "assistant", "parts": parts}


def planted(
    runs: Sequence[Run],
    *,
    of: Callable[[Run], dict[str, Any]] = otel,
    ids: Sequence[str] = (),
    is_nested: bool = True,
    shown: Sequence[Message] = (),
    second: Callable[[Run], dict[str, Any]] | None = None,
    order: Sequence[int] = (),
) -> tuple[World, list[str]]:
    """Calls whose spans lie in one another; ``second`` is another instrumentor, which records each call once more.

    Returns:
        The world, and the span of each run.
    """
    world = World()
    ids = ids or [run.identity or f"call_{number}" for number, run in enumerate(runs)]
    said = asks_for(runs, ids)
    world.call(OPENING, said, trace=TRACE, tools=[])
    above, spans = "", dict[int, str]()
    for number in order or range(len(runs)):
        run = runs[number]
        where: dict[str, Any] = {"trace": TRACE, "parent": above if is_nested else "", "duration_s": 2.0}
        exception = ("ValueError", run.exception) if run.exception else None
        spans[number] = world.span("tool", of(run), scope="one", exception=exception, start_s=2 + number / 10, **where)
        inner = spans[number]
        if second is not None:
            world.span("again", second(run), scope="two", trace=TRACE, parent=inner, start_s=2.05 + number / 10)
        above = inner
    seen = shown or [answers(identity, run.result or run.exception) for run, identity in zip(runs, ids, strict=True)]
    world.call([*OPENING, said, *seen], text("assistant", "Done."), trace=TRACE, tools=[], start_s=6.0)
    return world, [spans[number] for number in range(len(runs))]


THREE = (Run({"of": "a"}, "1"), Run({"of": "b"}, exception=BROKEN), Run({"of": "c"}, "3"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("has_ids", [True, False])
def test_nested_spans_of_parallel_calls_are_calls_of_their_own(dialect: str, *, has_ids: bool) -> None:
    runs = [run._replace(identity=f"call_{number}" if has_ids else "") for number, run in enumerate(THREE)]
    world, spans = planted(runs, of=DIALECTS[dialect])
    found = results(world)
    assert [result["span_id"] for result in found] == spans
    assert [result["status"] for result in found] == ["ok", "error", "ok"]
    assert [result["content"] for result in found] == ["1", BROKEN, "3"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("second", DIALECTS)
def test_a_second_instrumentors_span_of_each_is_no_further_call(dialect: str, second: str) -> None:
    world, spans = planted(THREE, of=DIALECTS[dialect], second=DIALECTS[second])
    assert [result["span_id"] for result in results(world)] == spans


def test_other_results_of_one_tracer_are_other_calls_where_it_records_no_arguments() -> None:
    runs = [Run({"of": "a"}, "1"), Run({"of": "b"}, "2")]
    world, spans = planted(runs, of=without_arguments)
    assert [result["span_id"] for result in results(world)] == spans


def test_parallel_calls_may_differ_in_a_flag_only() -> None:
    runs = [Run({"of": "a", "deep": deep}, str(deep)) for deep in (False, True)]
    world, spans = planted(runs)
    assert [result["span_id"] for result in results(world)] == spans


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("is_nested", [True, False])
def test_calls_with_one_id_have_the_answers_in_order(dialect: str, *, is_nested: bool) -> None:
    runs = [run._replace(identity="measure") for run in THREE]
    world, spans = planted(runs, of=DIALECTS[dialect], is_nested=is_nested)
    found = results(world)
    assert [(result["span_id"], result["content"]) for result in found] == list(
        zip(spans, ["1", BROKEN, "3"], strict=True)
    )
    assert [result["status"] for result in found] == ["ok", "error", "ok"]


def test_spans_that_start_in_another_order_go_by_their_arguments() -> None:
    runs = [run._replace(identity="measure") for run in THREE]
    world, spans = planted(runs, is_nested=False, order=(2, 0, 1))
    assert [result["span_id"] for result in results(world)] == spans


def test_an_error_mark_counts_for_one_of_the_calls_with_an_id() -> None:
    runs = [Run({"of": "a"}, "1", "measure"), Run({"of": "b"}, "2", "measure")]
    failed = {"type": "tool_call_response", "id": "measure", "response": "2", "is_error": True}
    marked = {"role": "tool", "parts": [failed]}
    world, _ = planted(runs, is_nested=False, shown=[answers("measure", "1"), marked])
    assert [result["status"] for result in results(world)] == ["ok", "error"]
