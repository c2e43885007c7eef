"""Laws that hold for any set of spans."""

import json
import random
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.converters import Converted

from .converters_world import World, answers, asks, convert, text, trace_id

LAWS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A few loops, interleaved: bare or in one trace, named or not, with tools, failures, choices, captures, scores."""
    world = World()
    loops: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        opening = [text("system", "s"), text("user", draw(st.sampled_from(["same", f"question {number}"])))]
        loops.append(
            {
                "name": f"l{number}",
                "seen": opening,
                "step": 0,
                "prompt": [1, 2, number],
                "trace": draw(st.sampled_from(["", trace_id(f"trace{number}"), trace_id("shared")])),
                "extra": {"spanloop.episode.id": f"e{number}"} if draw(st.booleans()) else {},
            }
        )
    for _ in range(draw(st.integers(0, 12))):
        _take_step(draw, world, draw(st.sampled_from(loops)))
    return world


def _take_step(draw: st.DrawFn, world: World, loop: dict[str, Any]) -> None:
    identity = f"{loop['name']}-{loop['step']}"
    trace = loop["trace"] or trace_id(identity)
    response_id = f"r-{identity}"
    said = draw(
        st.sampled_from([asks(identity), asks(identity, arguments='{"broken'), text("assistant", "done"), None])
    )
    where: dict[str, Any] = {"trace": trace, "attributes": loop["extra"], "response_id": response_id}
    where["dropped"] = draw(st.sampled_from([0, 0, 0, 1]))
    where["error"] = "boom" if said is None else ""
    where["start_s"] = draw(st.sampled_from([None, None, None, 0.0, 1.0, 5.0]))
    choices = [text("assistant", "one"), text("assistant", "two")][: draw(st.sampled_from([0, 0, 1, 2]))]
    choices.insert(draw(st.integers(0, len(choices))), said or text("assistant", ""))
    recorded = draw(st.sampled_from([1, len(choices)]))
    if said is not None:
        where["attributes"] = loop["extra"] | {"gen_ai.output.messages": json.dumps(choices[:recorded])}
    span = world.call(loop["seen"], said, **where)
    loop["step"] += 1
    if draw(st.booleans()):
        world.tool(identity, "ok", trace=trace)
    if said is not None:
        response = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
        if draw(st.booleans()):
            for place, choice in enumerate(choices):
                sampled = response if choice is said else [place, *response]
                world.capture(loop["prompt"], sampled, response_id=response_id, trace=trace, parent=span, choice=place)
        loop["prompt"] = [*loop["prompt"], *response, *draw(st.lists(st.integers(0, 9), max_size=2))]
        content = draw(st.sampled_from(["ok", "Error: boom"]))
        loop["seen"] = [*loop["seen"], said, answers(identity, content)]
    if draw(st.integers(0, 3)) == 0:
        world.score(draw(st.sampled_from([0.0, 1.0, float("nan")])), trace_id=trace, response_id=response_id)


def converted_rows(world: World, order: random.Random | None = None) -> Converted:
    spans, scores, generations = world.span_frame(), world.score_frame(), world.generation_frame()
    if order is not None:
        spans, scores, generations = (
            frame[order.sample(range(frame.height), frame.height)] for frame in (spans, scores, generations)
        )
    return convert(spans, scores=scores, generations=generations)


@LAWS
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(world: World, order: random.Random) -> None:
    expected, got = converted_rows(world), converted_rows(world, order)
    assert all(one.equals(other) for one, other in zip(expected, got, strict=True))


@LAWS
@given(worlds(), st.data())
def test_repeated_deliveries_change_nothing(world: World, data: st.DataObject) -> None:
    expected = converted_rows(world)
    count = len(world.spans)
    again = data.draw(st.lists(st.integers(0, count - 1), max_size=5)) if count else []
    for number in again:
        world.spans.append(dict(world.spans[number], IngestedAt=world.spans[number]["IngestedAt"] + 5))
    got = converted_rows(world)
    assert all(getattr(got, name).equals(getattr(expected, name)) for name in Converted._fields[:4])
    assert got.rejected.height == expected.rejected.height + len(again)


@LAWS
@given(worlds())
def test_accepted_and_rejected_make_up_the_input(world: World) -> None:
    converted = converted_rows(world)
    accepted = converted.transitions.select("trace_id", "span_id")
    of_spans = converted.rejected.filter(~pl.col("reason").str.starts_with("score_"))
    both = pl.concat([accepted, of_spans.select("trace_id", "span_id")]).sort("trace_id", "span_id")
    given_keys = world.span_frame().select(trace_id="TraceId", span_id="SpanId").sort("trace_id", "span_id")
    assert both.equals(given_keys)


@LAWS
@given(worlds())
def test_rows_of_one_conversion_agree(world: World) -> None:
    converted = converted_rows(world)
    episodes = converted.episodes.select("episode_id", "revision", "step_count").sort("episode_id")
    for table in (converted.transitions, converted.trajectories, converted.failures):
        assert table.join(episodes, on=["episode_id", "revision"], how="anti").is_empty()
    steps = converted.transitions.group_by("episode_id").agg(pl.col("step").sort())
    for episode_id, found in steps.iter_rows():
        count = episodes.filter(pl.col("episode_id") == episode_id).item(0, "step_count")
        assert found == list(range(count))
    for column in ("state", "tools", "action", "tool_results"):
        assert all(json.loads(value) is not None for value in converted.transitions[column].to_list())


@LAWS
@given(worlds())
def test_masks_cover_exactly_what_was_sampled_in_trainable_steps(world: World) -> None:
    converted = converted_rows(world)
    steps = {(row["episode_id"], row["step"]): row for row in converted.transitions.iter_rows(named=True)}
    masked = 0
    for row in converted.trajectories.iter_rows(named=True):
        ids, mask, logprobs = row["response_token_ids"], row["loss_mask"], row["logprobs"]
        assert len(ids) == len(mask) == len(logprobs)
        assert all(value == 0 for value, kept in zip(logprobs, mask, strict=True) if not kept)
        assert row["is_trainable"] == (1 in mask)
        assert row["is_trainable"] == (row["untrainable_reason"] == "")
        masked += sum(mask)
        last = steps[row["episode_id"], row["last_step"]]
        assert row["prompt_token_ids"] + ids == last["prompt_token_ids"] + last["response_token_ids"]
    sampled = [row for row in steps.values() if row["is_trainable"] and row["token_source"] == "captured"]
    assert masked == sum(len(row["response_token_ids"]) for row in sampled)


@LAWS
@given(worlds(), st.data())
def test_more_spans_never_take_a_named_episode_apart(world: World, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(world.spans)))
    whole = converted_rows(world)
    early = World(spans=world.spans[:cut], scores=[], generations=world.generations)
    named = early.convert().episodes.filter(pl.col("episode_key") != "")["episode_id"].to_list()
    assert set(named) <= set(whole.episodes["episode_id"].to_list())
