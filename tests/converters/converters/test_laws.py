"""Laws of arrival: how spans are split into runs, when they come, and what is wrong with some of them."""

import json
import random
from io import BytesIO
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.converters import Converted, frames

from .converters_world import OPENING, World, answers, asks, convert, text, trace_id
from .test_properties import worlds

Row = dict[str, Any]

LAWS = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def busy_worlds(draw: st.DrawFn) -> World:
    """Worlds of ``test_properties``, some of whose spans carry token ids, nest, or belong to nobody."""
    world = draw(worlds())
    chance = random.Random(draw(st.integers(0, 1_000)))
    for span in list(world.spans):
        kind = chance.randrange(6)
        if kind == 0:
            ids = [chance.randrange(9) for _ in range(chance.randrange(4))]
            told = {"prompt_token_ids": [1, 2], "response_token_ids": ids, "logprobs": [-0.5] * chance.randrange(4)}
            span["SpanAttributes"] = span["SpanAttributes"] + [
                {"key": key, "value": json.dumps(value)} for key, value in told.items()
            ]
        elif kind == 1:
            attributes = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "search"}
            world.span("tools/call search", attributes, trace=span["TraceId"], parent=span["SpanId"])
        elif kind == 2:
            world.span("POST", {"acme.kind": "llm", "acme.llm.prompt_tokens": 3}, trace=span["TraceId"], scope="acme")
    return world


def converted_parts(world: World, parts: list[frozenset[str]]) -> list[Converted]:
    """All spans each time, as the pipeline gives them, and only the episodes of some traces built."""
    spans, scores, generations = world.span_frame(), world.score_frame(), world.generation_frame()
    return [convert(spans, scores=scores, generations=generations, traces=part) for part in parts]


def rows_of(frame: pl.DataFrame, *keys: str) -> dict[tuple[Any, ...], Row]:
    """Rows by key; the same row may come from several parts, another one may not."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in frame.iter_rows(named=True):
        key = tuple(row[name] for name in keys)
        assert found.setdefault(key, row) == row
    return found


KEYS = {
    "episodes": ("episode_id",),
    "transitions": ("transition_id",),
    "trajectories": ("trajectory_id",),
    "failures": ("failure_id",),
}


@LAWS
@given(busy_worlds(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_any_split_into_batches_gives_the_rows_of_one(world: World, count: int, chance: random.Random) -> None:
    traces = sorted({span["TraceId"] for span in world.spans})
    numbers = [chance.randrange(count) for _ in traces]
    parts = [
        frozenset(trace for trace, own in zip(traces, numbers, strict=True) if own == number) for number in range(count)
    ]
    whole = world.convert()
    converted = converted_parts(world, parts)
    for table, keys in KEYS.items():
        together = pl.concat([getattr(part, table) for part in converted])
        assert rows_of(together, *keys) == rows_of(getattr(whole, table), *keys), table


@LAWS
@given(busy_worlds(), st.data())
def test_late_arrival_ends_in_the_same_rows_and_never_goes_back(world: World, data: st.DataObject) -> None:
    # Ingestion follows the order of arrival, whatever the clocks of the spans say.
    order = data.draw(st.permutations(range(len(world.spans))))
    for position, number in enumerate(order):
        world.spans[number]["IngestedAt"] += 1_000_000_000 + position
    whole = world.convert()
    cut = data.draw(st.integers(0, len(order)))
    early = World(
        spans=[world.spans[number] for number in order[:cut]], scores=world.scores, generations=world.generations
    ).convert()
    final = rows_of(whole.episodes, "episode_id")
    members = {row["episode_id"]: set(row["trace_ids"]) for row in early.episodes.iter_rows(named=True)}
    for key, row in rows_of(early.episodes, "episode_id").items():
        # An episode that is gone was joined to another one, which has all its traces.
        later = final.get(key)
        if later is None:
            held = [other for other in final.values() if members[key[0]] & set(other["trace_ids"])]
            assert held
        elif later["span_count"] > row["span_count"]:
            assert later["revision"] >= row["revision"]


@LAWS
@given(busy_worlds(), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing_with_carried_tokens_and_nested_tools(
    world: World, chance: random.Random
) -> None:
    expected = world.convert()
    again = World(spans=list(world.spans), scores=world.scores, generations=world.generations)
    for span in chance.sample(world.spans, min(3, len(world.spans))):
        again.spans.append({**span, "IngestedAt": span["IngestedAt"] + 7})
    chance.shuffle(again.spans)
    got = again.convert()
    for table in KEYS:
        assert getattr(got, table).equals(getattr(expected, table)), table


@LAWS
@given(busy_worlds())
def test_accepted_and_rejected_are_the_input_and_every_rejection_is_located(world: World) -> None:
    converted = world.convert()
    of_spans = converted.rejected.filter(~pl.col("reason").str.starts_with("score_"))
    assert converted.transitions.height + of_spans.height == len(world.spans)
    assert (of_spans["span_id"] != "").all()
    assert (of_spans["detail"] != "").all()
    untrainable = converted.transitions.filter(~pl.col("is_trainable"))
    assert (untrainable["untrainable_reason"] != "").all()
    for span_id, detail, reason in untrainable.select("span_id", "untrainable_detail", "untrainable_reason").rows():
        # What decided the episode is located where it happened.
        assert span_id in detail or reason in {"environment_fault", "unattributed_failure"}


@LAWS
@given(busy_worlds())
def test_every_table_survives_parquet(world: World) -> None:
    for frame in world.convert():
        plain = frame.with_columns(
            pl.col(name).cast(pl.List(pl.Struct({"key": dtype.key, "value": dtype.value})))
            for name, dtype in frame.schema.items()
            if isinstance(dtype, pl.Map)
        )
        buffer = BytesIO()
        plain.write_parquet(buffer)
        buffer.seek(0)
        assert frames.conform(pl.read_parquet(buffer), frame.schema).equals(frame)


BAD: dict[str, Row] = {
    "malformed_messages": {"attributes": {"gen_ai.input.messages": "[{"}},
    "redacted_content": {"seen": [text("user", "__REDACTED__")]},
    "dropped_attributes": {"dropped": 1},
    "missing_content": {"attributes": {"gen_ai.input.messages": ""}},
    "incomplete_stream": {
        "attributes": {
            "gen_ai.is_streaming": True,
            "gen_ai.response.finish_reasons": "",
            "gen_ai.output.messages": json.dumps([text("assistant", "half an ans")]),
        },
    },
    "request_failed": {"said": None, "error": "Error code: 500"},
    "token_mismatch": {"attributes": {"prompt_token_ids": "[1]", "response_token_ids": "[2]", "logprobs": "[-1,-2]"}},
    "missing_logprobs": {"attributes": {"prompt_token_ids": "[1]", "response_token_ids": "[2]"}},
}


def test_one_bad_span_of_each_kind_among_a_thousand_costs_exactly_itself() -> None:
    world = World()
    bad: dict[str, str] = {}
    kinds = list(BAD.items())
    for number in range(1_000):
        reason, broken = kinds[number // 50 % len(kinds)] if number % 50 == 25 and number < 400 else ("", {})
        given_: Row = dict(broken)
        seen = given_.pop("seen", [text("user", f"question {number}")])
        said = given_.pop("said", text("assistant", "x"))
        span = world.call(seen, said, trace=f"{number:032x}", finish=given_.pop("finish", "stop"), **given_)
        if reason:
            bad[span] = reason
    found = world.convert().transitions
    told = dict(found.filter(~pl.col("is_trainable")).select("span_id", "untrainable_reason").rows())
    assert told == bad
    assert set(bad.values()) == set(BAD)
    assert found.height == 1_000
    assert all(
        span_id in detail
        for span_id, detail in found.filter(~pl.col("is_trainable")).select("span_id", "untrainable_detail").rows()
    )


def test_a_tool_that_fails_without_a_result_is_an_error_of_that_call_alone() -> None:
    world = World()
    trace = trace_id("t")
    said = asks("c1")
    said["parts"].append(asks("c2")["parts"][0])
    first = world.call(OPENING, said, trace=trace)
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c1"}
    tool = world.span("execute_tool search", attributes, trace=trace, exception=("ValueError", "boom"))
    world.tool("c2", "fine", trace=trace)
    world.call([*OPENING, said, answers("c2", "fine")], text("assistant", "done"), trace=trace)
    row = world.convert().transitions.filter(pl.col("span_id") == first).row(0, named=True)
    results = {result["tool_call_id"]: result for result in json.loads(row["tool_results"])}
    assert (results["c1"]["status"], results["c1"]["error_type"], results["c1"]["span_id"]) == (
        "error",
        "ValueError",
        tool,
    )
    assert results["c1"]["content"] == "boom"
    assert (results["c2"]["status"], row["tool_error_count"]) == ("ok", 1)
