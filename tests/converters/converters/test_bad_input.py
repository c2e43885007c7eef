"""What is broken is rejected or made untrainable where it is, and costs nothing else."""

import gc
import json

import polars as pl
import pytest

from spanloop.converters import frames
from spanloop.converters.reading.python_reprs import value_of_repr
from spanloop.converters.results.tool_envelopes import open_answer
from spanloop.messages import MalformedMessagesError, MessageLog, ToolResponse, parse_messages
from spanloop.messages.json_values import python_object, text_of_repr

from .converters_world import OPENING, TRANSITIONS, World, asks, convert, loop, text, trace_id

TRACE = trace_id("t")


def test_nothing_makes_nothing() -> None:
    converted = World().convert()
    assert [frame.height for frame in converted] == [0] * 7
    assert converted.episodes.schema == frames.EPISODES
    assert converted.transitions.schema == TRANSITIONS
    assert converted.trajectories.schema == frames.TRAJECTORIES
    assert converted.failures.schema == frames.FAILURES
    assert converted.rejected.schema == frames.REJECTED
    assert converted.open_joins.schema == frames.OPEN_JOINS
    assert converted.messages.schema == frames.MESSAGES


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collection_of_cycles_is_left_as_it_was_even_by_an_error(*, is_on: bool) -> None:
    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        World().convert()
        assert gc.isenabled() == is_on
        with pytest.raises(pl.exceptions.PolarsError):
            convert(
                pl.DataFrame({"Duration": ["x"]}),
                scores=frames.empty(frames.SCORES),
                generations=frames.empty(frames.GENERATIONS),
            )
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if was_on else gc.disable)()


def test_output_schemas_hold_with_rows_too() -> None:
    world = World()
    loop(world, "x", trace=TRACE)
    world.capture([1], [2], response_id="chatcmpl-1")
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    assert converted.episodes.schema == frames.EPISODES
    assert converted.transitions.schema == TRANSITIONS
    assert converted.trajectories.schema == frames.TRAJECTORIES
    assert converted.failures.schema == frames.FAILURES


def test_columns_that_are_not_there_are_empty() -> None:
    world = World()
    loop(world, "x", trace=TRACE)
    spans = world.span_frame().drop("Events.Name", "Events.Attributes", "StatusMessage", "ScopeName")
    converted = convert(spans, scores=frames.empty(frames.SCORES), generations=frames.empty(frames.GENERATIONS))
    assert converted.transitions.height == 3


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("gen_ai.input.messages", "[{"),
        ("gen_ai.input.messages", '{"role": "user"}'),
        ("gen_ai.input.messages", "[1]"),
        ("gen_ai.input.messages", '[{"role": 1, "parts": []}]'),
        ("gen_ai.input.messages", "[" * 100_000),
        ("gen_ai.input.messages", "[] trailing"),
        ("gen_ai.output.messages", "not json"),
        ("gen_ai.tool.definitions", '{"name": "x"}'),
        ("gen_ai.tool.definitions", "[3]"),
    ],
)
def test_malformed_content_is_located(attribute: str, value: str) -> None:
    world = World()
    span = world.call(OPENING, text("assistant", "x"), trace=TRACE, attributes={attribute: value})
    row = world.convert().transitions.row(0, named=True)
    assert row["untrainable_reason"] == "malformed_messages"
    assert span in row["untrainable_detail"]
    assert attribute in row["untrainable_detail"]


@pytest.mark.parametrize("marker", ["__REDACTED__", "[REDACTED]"])
def test_redacted_content_is_not_trained_on(marker: str) -> None:
    world = World()
    world.call([OPENING[0], text("user", marker)], text("assistant", "x"), trace=TRACE)
    row = world.convert().transitions.row(0, named=True)
    assert row["untrainable_reason"] == "redacted_content"
    assert "gen_ai.input.messages" in row["untrainable_detail"]


def test_dropped_attributes_are_not_trained_on() -> None:
    world = World()
    world.call(OPENING, text("assistant", "x"), trace=TRACE, dropped=2)
    assert world.convert().transitions["untrainable_reason"].to_list() == ["dropped_attributes"]


def test_spans_without_ids_or_times_are_rejected() -> None:
    world = World()
    for number in range(4):
        world.call(OPENING, text("assistant", "x"), trace=trace_id(f"t{number}"))
    world.spans[0]["TraceId"] = ""
    world.spans[1]["SpanId"] = None
    world.spans[2]["Timestamp"] = None
    converted = world.convert()
    assert converted.rejected["reason"].to_list() == ["malformed_span"] * 3
    assert converted.transitions.height == 1


def test_a_span_delivered_twice_counts_once_as_of_its_first_delivery() -> None:
    world = World()
    loop(world, "x", trace=TRACE)
    before = world.convert()
    again = dict(world.spans[0], IngestedAt=world.spans[0]["IngestedAt"] + 10**9)
    world.spans.append(again)
    after = world.convert()
    assert after.episodes.equals(before.episodes)
    assert after.rejected["reason"].to_list() == ["duplicate_span"]


def test_one_bad_span_in_a_thousand_costs_one() -> None:
    world = World()
    for number in range(1000):
        content = text("assistant", "x")
        broken = {"gen_ai.input.messages": "[{"} if number == 500 else {}
        world.call([text("user", f"{number}")], content, trace=f"{number:032x}", attributes=broken)
    transitions = world.convert().transitions
    assert transitions.height == 1000
    assert transitions["is_trainable"].sum() == 999


def test_text_that_no_column_can_hold_is_kept_readable() -> None:
    world = World()
    lone = json.loads('"\\ud800 half"')
    world.call([text("user", lone)], asks("c1", arguments={"query": lone}), trace=TRACE)
    world.tool("c1", "Error: x", trace=TRACE)
    converted = world.convert()
    state = json.loads(converted.transitions.item(0, "state"))
    assert state[0]["parts"][0]["content"] == "\ufffd half"
    assert converted.failures.height == 1


def test_a_python_repr_with_half_an_emoji_is_read_as_json_is() -> None:
    assert python_object(repr({"a\ud83d": ["\udc00"]})) == {"a\ufffd": ["\ufffd"]}
    assert value_of_repr(r"[Call(name='f', arguments='\ud83d')]") == [{"name": "f", "arguments": "\ufffd"}]
    assert open_answer(r"content='cut \ud83d' tool_call_id='c'").content == "cut \ufffd"
    assert text_of_repr(r"[TextBlock(type='text', text='cut \ud83d')]").encode()


def test_a_model_call_that_two_instrumentors_recorded_is_one_step() -> None:
    world = World()
    agent = world.span(
        "agent",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"},
        trace=TRACE,
        start_s=0,
        duration_s=9,
    )
    outer = world.call(OPENING, None, trace=TRACE, parent=agent, start_s=1, duration_s=4)
    inner = world.call(OPENING, text("assistant", "x"), trace=TRACE, parent=outer, start_s=2, duration_s=1)
    converted = world.convert()
    assert converted.transitions.select("span_id", "agent_name").rows() == [(inner, "a")]
    duplicate = converted.rejected.filter(pl.col("reason") == "duplicate_model_call").row(0, named=True)
    assert (duplicate["span_id"], inner in duplicate["detail"]) == (outer, True)


def test_a_sub_agents_own_call_within_a_call_is_no_duplicate() -> None:
    world = World()
    outer = world.call(OPENING, text("assistant", "x"), trace=TRACE, start_s=1, duration_s=4)
    world.call([text("user", "other")], text("assistant", "y"), trace=TRACE, parent=outer, start_s=2, duration_s=1)
    assert world.convert().transitions.height == 2


def test_a_history_that_was_read_before_reads_the_same_as_on_its_own() -> None:
    history = [text("system", "s"), text("user", "u"), asks("c1"), text("user", "go on"), asks("c2")]
    lists = [json.dumps(history[:length]) for length in (3, 2, 5, 4, 3)]
    lists += [
        json.dumps([*history[:3], text("user", "other")]),
        json.dumps(history, indent=1),
        "[]",
        json.dumps(history),
    ]
    reader = MessageLog()
    for each in lists:
        assert reader.read(each) == parse_messages(each)
    for broken in (json.dumps(history)[:-1], json.dumps(history)[:-1] + ", 1]", json.dumps(history) + "x"):
        with pytest.raises(MalformedMessagesError):
            reader.read(broken)


def test_messages_in_chat_form_and_unknown_parts() -> None:
    (message,) = parse_messages('[{"role": "developer", "content": "be brief"}]')
    assert (message.role, message.text) == ("system", "be brief")
    assert json.loads(message.json)["parts"] == [{"type": "text", "content": "be brief"}]
    (message,) = parse_messages('[ {"role": "user", "parts": [{"type": "new", "x": [1]}, "plain"], "name": "n"} ]')
    assert json.loads(message.json) == {"role": "user", "parts": [{"type": "new", "x": [1]}, "plain"], "name": "n"}


@pytest.mark.parametrize("key", ["response", "result"])
def test_both_keys_of_a_tool_response(key: str) -> None:
    part = {"type": "tool_call_response", "id": "c", key: {"a": 1}}
    (message,) = parse_messages(json.dumps([{"role": "tool", "parts": [part]}]))
    assert message.tool_responses == (ToolResponse("c", '{"a":1}'),)


def test_equal_messages_have_equal_digests_however_they_are_spelled() -> None:
    spelled = [
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "f", "arguments": {"a": 1, "b": 2}}]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "2", "name": "f", "arguments": '{"b": 2, "a": 1}'}],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": ""},
                {"type": "tool_call", "name": "f", "arguments": {"b": 2, "a": 1}},
            ],
            "finish_reason": "tool_call",
        },
    ]
    assert len({message.digest for message in parse_messages(json.dumps(spelled))}) == 1


@pytest.mark.parametrize("broken", ["", "[", "[1,", "[{}", '[{"role": "user"} {"role": "user"}]', "[{}],", "nul"])
def test_what_is_no_list_of_messages_is_refused(broken: str) -> None:
    with pytest.raises(MalformedMessagesError):
        parse_messages(broken)


@pytest.mark.parametrize(
    ("count", "stored"), [("4294967295", 2**32 - 1), ("99999999999", 0), ("9" * 5_000, 0), ("x", 0)]
)
def test_token_counts_that_no_column_holds_count_as_absent(count: str, stored: int) -> None:
    world = World()
    world.call(OPENING, text("assistant", "x"), trace=TRACE, attributes={"gen_ai.usage.input_tokens": count})
    assert world.convert().transitions["input_tokens"].to_list() == [stored]


@pytest.mark.parametrize(("duration", "stored"), [(2**64 - 1_000, 0), (2**63 - 1, 2**63 - 1)])
def test_a_span_that_ends_before_it_starts_or_never_costs_nobody_else(duration: int, stored: int) -> None:
    world = World()
    world.call(OPENING, None, trace=TRACE, error="boom")
    world.spans[0]["Duration"] = duration
    start_ns = world.spans[0]["Timestamp"]
    world.call(OPENING, text("assistant", "x"), trace=trace_id("other"))
    first = world.convert().transitions.filter(pl.col("trace_id") == TRACE)
    assert first["duration_ns"].to_list() == [min(stored, 2**63 - 1 - start_ns)]


def test_content_nested_almost_too_deep_to_decode_is_malformed_or_read() -> None:
    world = World()
    for depth in range(800, 1_000):
        nested = f"{'[' * depth}{']' * depth}"
        said = f'[{{"role": "assistant", "parts": [{{"type": "new", "v": {nested}}}]}}]'
        world.call(OPENING, None, trace=TRACE, attributes={"gen_ai.output.messages": said})
    assert set(world.convert().transitions["untrainable_reason"].to_list()) == {"", "malformed_messages"}


@pytest.mark.parametrize("own", ["nothing", "error.type", "event", "reason"])
def test_a_call_that_answered_and_ended_has_failed_only_where_it_has_an_error_of_its_own(own: str) -> None:
    world = World()
    attributes = {"error.type": "timeout"} if own == "error.type" else {}
    finish = "error" if own == "reason" else "stop"
    world.call(
        list(OPENING),
        text("assistant", "Sunny."),
        trace=trace_id("t"),
        finish=finish,
        error="a tool of the run failed",
        attributes=attributes,
        exception=("TimeoutError", "late") if own == "event" else None,
    )
    reasons = world.convert().transitions["untrainable_reason"].to_list()
    assert reasons == ["" if own == "nothing" else "request_failed"]
