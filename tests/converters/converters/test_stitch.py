import json
from typing import Any

import polars as pl
import pytest

from spanloop.converters import Converted, Options
from spanloop.converters.linking import stitch
from spanloop.converters.linking.continuation import Evidence
from spanloop.converters.linking.identity import is_unique
from spanloop.converters.reading.normalise import normalise, read_spans
from spanloop.messages import MessageLog

from .converters_world import OPENING, World, answers, asks, convert, loop, text, trace_id

UNIQUE = "call_4vNQ0bLw8mZr2kTqXfHs9dYc"
THREAD = "6f1d9c52-0b7e-4a38-9d24-c8e5a1f07b36"


def shape(converted: Converted) -> list[list[str]]:
    """Traces of every episode."""
    return sorted(converted.episodes["trace_ids"].to_list())


def test_interleaved_loops_with_one_opening_stay_apart() -> None:
    world = World()
    seen = {name: list(OPENING) for name in "abc"}
    for step in range(3):
        for name, messages in seen.items():
            said = asks(f"{name}{step}") if step < 2 else text("assistant", "done")
            world.call(messages, said, trace=trace_id(f"{name}{step}"), duration_s=0.05)
            messages += [said, answers(f"{name}{step}", "same result")]
    expected = sorted(sorted(trace_id(f"{name}{step}") for step in range(3)) for name in "abc")
    assert shape(world.convert()) == expected


def test_loops_that_agree_in_everything_but_tool_call_ids_stay_apart() -> None:
    world = World()
    for name in "ab":
        world.call(OPENING, asks(f"{name}-1", arguments={"query": "x"}), trace=trace_id(f"{name}1"))
    for name in "ab":
        history = [*OPENING, asks(f"{name}-1", arguments={"query": "x"}), answers(f"{name}-1", "y")]
        world.call(history, text("assistant", "done"), trace=trace_id(f"{name}2"))
    assert shape(world.convert()) == sorted([sorted([trace_id(f"{n}1"), trace_id(f"{n}2")]) for n in "ab"])


def test_a_conversation_without_tools_is_joined_by_its_messages() -> None:
    world = World()
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("t1"))
    again = [*OPENING, text("assistant", "Sunny."), text("user", "And tomorrow?")]
    world.call(again, text("assistant", "Rain."), trace=trace_id("t2"))
    assert world.convert().episodes["step_count"].to_list() == [2]


def test_the_same_words_in_two_services_are_two_episodes() -> None:
    world = World()
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("t1"), service="one")
    again = [*OPENING, text("assistant", "Sunny."), text("user", "And tomorrow?")]
    world.call(again, text("assistant", "Rain."), trace=trace_id("t2"), service="two")
    assert world.convert().episodes.height == 2


@pytest.mark.parametrize(
    ("identifier", "counts"),
    [("call_4vNQ0bLw8mZr2kTqXfHs9dYc", [2]), ("call_0001", [1, 1])],
    ids=["unique", "counted"],
)
def test_only_a_unique_id_joins_a_history_that_the_harness_edited(identifier: str, counts: list[int]) -> None:
    world = World()
    world.call(OPENING, asks(identifier), trace=trace_id("t1"))
    edited = [OPENING[0], text("user", "(summary)"), asks(identifier), answers(identifier, "ok")]
    world.call(edited, text("assistant", "done"), trace=trace_id("t2"))
    converted = world.convert()
    assert converted.episodes["step_count"].to_list() == counts
    open_joins = converted.open_joins.select("trace_id", "other_trace_id").rows()
    assert open_joins == ([(trace_id("t2"), trace_id("t1"))] if len(counts) > 1 else [])


def test_named_episodes_are_never_joined_even_within_one_trace() -> None:
    world = World()
    trace = trace_id("batch")
    main = world.span("main", {}, trace=trace)
    for name in ("one", "two"):
        task = world.span(
            f"task {name}", {"spanloop.episode.id": name, "spanloop.task.id": "t"}, trace=trace, parent=main
        )
        world.call(OPENING, text("assistant", "Sunny."), trace=trace, parent=task)
    converted = world.convert()
    assert sorted(converted.episodes["episode_id"].to_list()) == ["one", "two"]
    assert converted.episodes["episode_key"].to_list() == converted.episodes["episode_id"].to_list()
    assert set(converted.transitions["task_id"].to_list()) == {"t"}
    assert set(converted.transitions["group_id"].to_list()) == {"t"}


def test_a_named_episode_may_have_many_traces() -> None:
    world = World()
    for number in range(3):
        world.call(
            OPENING, text("assistant", "x"), trace=trace_id(f"t{number}"), attributes={"spanloop.episode.id": "e"}
        )
    assert world.convert().episodes["step_count"].to_list() == [3]


def test_a_conversation_id_joins_traces_until_the_conversation_starts_over() -> None:
    world = World()
    ids = {"gen_ai.conversation.id": THREAD}
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("a1"), attributes=ids)
    world.call(
        [text("user", "(history kept by the server) And tomorrow?")],
        text("assistant", "Rain."),
        trace=trace_id("a2"),
        attributes=ids,
    )
    world.call(OPENING, text("assistant", "Windy."), trace=trace_id("b1"), attributes=ids)
    assert sorted(world.convert().episodes["step_count"].to_list()) == [1, 2]


def questions(conversation: str, *, minutes: float = 0, overlap: bool = False) -> World:
    """Two questions in traces of their own under one conversation id."""
    world = World()
    for number in range(2):
        asked = [OPENING[0], text("user", f"question {number}")]
        start_s = number * (0.2 if overlap else 60 * minutes + 1)
        ids = {"gen_ai.conversation.id": conversation}
        world.call(asked, text("assistant", "x"), attributes=ids, trace=trace_id(f"t{number}"), start_s=start_s)
    return world


@pytest.mark.parametrize("conversation", ["thread-1", "1", "session2026", "run-0000-0000", "user_42"])
def test_a_conversation_id_that_may_repeat_joins_nothing_by_itself(conversation: str) -> None:
    converted = questions(conversation).convert()
    assert converted.episodes["step_count"].to_list() == [1, 1]
    (detail,) = converted.open_joins["detail"].to_list()
    assert repr(conversation) in detail


@pytest.mark.parametrize("overlap", [False, True])
def test_a_conversation_id_joins_no_history_that_lacks_the_earlier_answer(*, overlap: bool) -> None:
    """A program that uses one id for all that its process does."""
    converted = questions(THREAD, overlap=overlap).convert()
    assert converted.episodes["step_count"].to_list() == [1, 1]
    assert converted.open_joins.height == 1


REPEATED: dict[str, list[dict[str, Any]]] = {
    "its answer in an edited history": [text("user", "(summary)"), text("assistant", "Sunny, no rain at all.")],
    "its answer as another agent's words": [text("user", "weather_agent: Sunny, no rain at all. Check this.")],
    "its beginning in a shortened history": [*OPENING, text("assistant", "(shortened)")],
    "a part of the prompt, without the system's": [],
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_conversation_id_joins_what_repeats_the_conversation(name: str) -> None:
    world = World()
    ids = {"gen_ai.conversation.id": THREAD}
    world.call(OPENING, text("assistant", "Sunny, no rain at all."), trace=trace_id("a1"), attributes=ids)
    seen = [*REPEATED[name], text("user", "And tomorrow?")]
    world.call(seen, text("assistant", "Rain."), trace=trace_id("a2"), attributes=ids, start_s=7200)
    assert world.convert().episodes["step_count"].to_list() == [2]


def test_more_tokens_than_the_text_has_show_a_history_that_the_server_keeps() -> None:
    world = World()
    for number, tokens in enumerate([(40, 12), (61, 9)]):
        counted = {"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]}
        asked = [text("user", ["What is the weather in Paris today?", "And tomorrow?"][number])]
        attributes = {"gen_ai.conversation.id": THREAD, **counted}
        world.call(asked, text("assistant", "x"), trace=trace_id(f"t{number}"), attributes=attributes)
    assert world.convert().episodes["step_count"].to_list() == [2]


def test_two_conversations_of_one_process_id_are_two_episodes() -> None:
    world = World()
    ids = {"gen_ai.conversation.id": THREAD}
    said = {name: text("assistant", f"{name}: sunny") for name in "ab"}
    opened = {name: [OPENING[0], text("user", f"question of {name}")] for name in "ab"}
    for name in "ab":
        world.call(opened[name], said[name], trace=trace_id(f"{name}1"), attributes=ids)
    for name in "ab":
        edited = [text("user", "(summary)"), said[name], text("user", "And tomorrow?")]
        world.call(edited, text("assistant", "Rain."), trace=trace_id(f"{name}2"), attributes=ids)
    assert shape(world.convert()) == sorted([sorted([trace_id(f"{n}1"), trace_id(f"{n}2")]) for n in "ab"])


def test_calls_of_two_conversations_do_not_continue_each_other_for_their_words() -> None:
    world = World()
    other = "0d4b7c1e-93fa-4c52-8e06-5b1f9a27d3c8"
    for name, conversation in (("a", THREAD), ("b", other)):
        ids = {"gen_ai.conversation.id": conversation}
        world.call(OPENING, text("assistant", "Sunny."), trace=trace_id(f"{name}1"), attributes=ids, start_s=0)
    for name, conversation in (("a", THREAD), ("b", other)):
        ids = {"gen_ai.conversation.id": conversation}
        again = [*OPENING, text("assistant", "Sunny."), text("user", "And tomorrow?")]
        world.call(again, text("assistant", "Rain."), trace=trace_id(f"{name}2"), attributes=ids, start_s=1)
    assert shape(world.convert()) == sorted([sorted([trace_id(f"{n}1"), trace_id(f"{n}2")]) for n in "ab"])


@pytest.mark.parametrize(("minutes", "counts"), [(20, [2]), (40, [1, 1])])
def test_a_short_conversation_id_joins_what_repeats_the_conversation_soon(minutes: float, counts: list[int]) -> None:
    world = World()
    ids = {"gen_ai.conversation.id": "thread-1"}
    world.call(OPENING, text("assistant", "Sunny."), trace=trace_id("a1"), attributes=ids)
    edited = [*OPENING, text("assistant", "(shortened)"), text("user", "And tomorrow?")]
    world.call(edited, text("assistant", "Rain."), trace=trace_id("a2"), attributes=ids, start_s=60 * minutes)
    assert world.convert().episodes["step_count"].to_list() == counts


@pytest.mark.parametrize("identifier", ["call_0001", "c1", ""])
@pytest.mark.parametrize("place", ["service", "scope", "time", "content"])
def test_ids_that_repeat_join_no_other_loop(identifier: str, place: str) -> None:
    """The end of a loop whose beginning is missing does not continue another loop that used the same id."""
    world = World()
    asked = asks(identifier, arguments={"query": "x"})
    world.call(OPENING, asked, trace=trace_id("a1"))
    opening = [OPENING[0], text("user", "another question")] if place == "content" else list(OPENING)
    elsewhere: dict[str, dict[str, Any]] = {
        "service": {"service": "other"},
        "scope": {"scope": "other"},
        "time": {"start_s": 3600.0},
        "content": {},
    }
    history = [*opening, asked, answers(identifier, "ok")]
    world.call(history, text("assistant", "done"), trace=trace_id("b2"), **elsewhere[place])
    assert world.convert().episodes["step_count"].to_list() == [1, 1]


def test_equal_calls_with_other_ids_are_not_continued_across_traces() -> None:
    world = World()
    world.call(OPENING, asks("call_0001", arguments={"query": "x"}), trace=trace_id("a1"))
    history = [*OPENING, asks("call_0002", arguments={"query": "x"}), answers("call_0002", "ok")]
    world.call(history, text("assistant", "done"), trace=trace_id("b2"))
    assert world.convert().episodes["step_count"].to_list() == [1, 1]


def test_an_id_that_the_store_contradicts_is_not_unique() -> None:
    world = World()
    identifier = "call_4vNQ0bLw8mZr2kTqXfHs9dYc"
    world.call(OPENING, asks(identifier, arguments={"query": "x"}), trace=trace_id("a1"))
    world.call(OPENING, asks(identifier, arguments={"query": "y"}), trace=trace_id("b1"))
    edited = [
        OPENING[0],
        text("user", "(summary)"),
        asks(identifier, arguments={"query": "x"}),
        answers(identifier, "ok"),
    ]
    world.call(edited, text("assistant", "done"), trace=trace_id("c2"))
    assert world.convert().episodes["step_count"].to_list() == [1, 1, 1]


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("59d80ea0-5ee3-4d1d-94eb-f35ff32b0bc3", True),
        ("run--59d80ea0-5ee3-4d1d-94eb-f35ff32b0bc3-0", True),
        ("chatcmpl-tool-1c9d6f0e2b7a4853a1d0c3b5e7f92468", True),
        ("call_4vNQ0bLw8mZr2kTqXfHs9dYc", True),
        ("toolu_01A09q90qw90lq917835lq9", True),
        ("0f3a9c1b7d2e4856", True),
        ("00000000-0000-0000-0000-000000000001", False),
        ("0000000000000001", False),
        ("call_0001", False),
        ("call_abc1", False),
        ("call_tqeeer2c", False),
        ("tooluse_17", False),
        ("1763876422512345678", False),
        ("2026-11-23T07:01:29.123456Z", False),
        ("weather-assistant-session-2026", False),
        ("a-very-long-conversation-name-without-digits", False),
        ("", False),
    ],
)
def test_random_ids_are_told_from_counted_ones(identifier: str, *, expected: bool) -> None:
    assert is_unique(identifier) is expected


@pytest.mark.parametrize(("joins", "episodes"), [(False, 2), (True, 1)])
def test_a_session_joins_only_when_asked_to(*, joins: bool, episodes: int) -> None:
    world = World()
    for number in range(2):
        opening = [OPENING[0], text("user", f"question {number}")]
        world.call(opening, text("assistant", "x"), trace=trace_id(f"t{number}"), attributes={"session.id": "s"})
    assert world.convert(Options(session_is_episode=joins)).episodes.height == episodes


def test_an_agent_used_as_a_tool_belongs_to_the_episode_that_called_it() -> None:
    world = World()
    ask = asks("call-1", "ask_worker", {"task": "Refund 10 EUR."})
    world.call(OPENING, ask, trace=trace_id("p1"))
    work = [text("system", "You are the worker."), text("user", "Refund 10 EUR.")]
    world.call(work, asks("call-2"), trace=trace_id("w1"))
    world.call([*work, asks("call-2"), answers("call-2", "ok")], text("assistant", "Refunded."), trace=trace_id("w2"))
    world.call([*OPENING, ask, answers("call-1", "Refunded.")], text("assistant", "All done."), trace=trace_id("p2"))
    world.call(work, text("assistant", "Refunded."), trace=trace_id("stranger"), start_s=500)
    converted = world.convert()
    assert sorted(converted.episodes["step_count"].to_list()) == [1, 4]
    planner = converted.transitions.filter(pl.col("trace_id") == trace_id("p1")).row(0, named=True)
    assert json.loads(planner["next_state"])[-1]["parts"][0]["response"] == "Refunded."


def test_skewed_clocks_do_not_change_the_order_of_a_conversation() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=trace_id("t1"), start_s=100)
    world.call([*OPENING, asks("c1"), answers("c1", "x")], text("assistant", "done"), trace=trace_id("t2"), start_s=40)
    converted = world.convert()
    assert converted.transitions.sort("step")["trace_id"].to_list() == [trace_id("t1"), trace_id("t2")]


def test_a_retry_is_a_branch_of_the_same_episode() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=trace_id("t1"))
    history = [*OPENING, asks("c1"), answers("c1", "x")]
    world.call(history, None, trace=trace_id("t2"), error="Rate limit reached")
    world.call(history, text("assistant", "done"), trace=trace_id("t3"))
    converted = world.convert()
    assert converted.episodes["step_count"].to_list() == [3]
    assert converted.transitions.sort("step")["untrainable_reason"].to_list() == ["", "request_failed", ""]


def test_cyclic_and_missing_parents_are_put_up_with() -> None:
    world = World()
    trace = trace_id("t")
    world.span("a", {"spanloop.episode.id": "one"}, trace=trace, span_id="a" * 16, parent="gone")
    world.span("b", {"spanloop.episode.id": "two"}, trace=trace, span_id="b" * 16)
    world.span("c", {}, trace=trace, span_id="c" * 16, parent="d" * 16)
    world.call(OPENING, text("assistant", "x"), trace=trace, span_id="d" * 16, parent="c" * 16)
    world.call(OPENING, text("assistant", "y"), trace=trace, span_id="e" * 16, parent="e" * 16)
    converted = world.convert()
    assert converted.transitions.height == 2
    assert converted.transitions.height + converted.rejected.height == 5


def test_a_hundred_thousand_spans_deep() -> None:
    depth = 100_000
    world = World()
    trace = trace_id("deep")
    world.span("a", {"spanloop.episode.id": "one"}, trace=trace, span_id=f"{0:016x}")
    world.span("b", {"spanloop.episode.id": "two"}, trace=trace, span_id="b" * 16)
    world.call(OPENING, text("assistant", "x"), trace=trace, span_id="f" * 16, parent=f"{depth - 1:016x}")
    base = world.span_frame()
    middle = base.head(1).select(pl.exclude("SpanId", "ParentSpanId", "SpanAttributes"))
    chain = pl.DataFrame({"number": range(1, depth)}).select(
        pl.col("number").map_elements(lambda n: f"{n:016x}", return_dtype=pl.String).alias("SpanId"),
        pl.col("number").map_elements(lambda n: f"{n - 1:016x}", return_dtype=pl.String).alias("ParentSpanId"),
        pl.lit([], dtype=base.schema["SpanAttributes"]).alias("SpanAttributes"),
    )
    deep = chain.join(middle, how="cross").select(base.columns)
    world.spans.clear()
    converted = convert(pl.concat([base, deep]), scores=world.score_frame(), generations=world.generation_frame())
    assert converted.episodes["episode_id"].to_list() == ["one"]
    assert converted.transitions.height + converted.rejected.height == depth + 2


def test_ids_that_a_mock_server_repeats_do_not_glue_loops_together() -> None:
    world = World()
    for number in range(3):
        opening = [OPENING[0], text("user", f"question {number}")]
        said = asks("call_abc1", arguments={"query": "x"})
        same = "chatcmpl-1"
        world.call(opening, said, trace=trace_id(f"a{number}"), response_id=same)
        world.call(
            [*opening, said, answers("call_abc1", "ok")],
            text("assistant", "x"),
            trace=trace_id(f"b{number}"),
            response_id=same,
        )
    assert world.convert().episodes["step_count"].to_list() == [2, 2, 2]


def test_loop_helper_makes_one_episode() -> None:
    world = World()
    loop(world, "x", steps=4)
    assert world.convert().episodes["step_count"].to_list() == [4]


EVIDENCE: dict[Evidence, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    Evidence.TOOL_CALL_AND_HISTORY: ([*OPENING, asks(UNIQUE), answers(UNIQUE, "ok")], asks(UNIQUE)),
    Evidence.TOOL_CALL: ([text("user", "(summary)"), asks(UNIQUE), answers(UNIQUE, "ok")], asks(UNIQUE)),
    Evidence.HISTORY: ([*OPENING, text("assistant", "Sunny."), text("user", "?")], text("assistant", "Sunny.")),
    Evidence.UNRECORDED_TOOL_CALL: ([*OPENING, answers("call_1", "ok")], asks("call_1")),
    Evidence.UNRECORDED_OUTPUT: ([*OPENING, text("assistant", "Sunny."), text("user", "?")], text("assistant", "")),
}


@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("apart", [False, True])
def test_a_step_has_the_evidence_for_what_it_continues(evidence: Evidence, *, apart: bool) -> None:
    seen, said = EVIDENCE[evidence]
    world = World()
    world.call(OPENING, said, trace=trace_id("t1"))
    world.call(seen, text("assistant", "done"), trace=trace_id("t2" if apart else "t1"))
    if evidence is Evidence.UNRECORDED_TOOL_CALL and not apart:
        evidence = Evidence.TOOL_CALL  # within one trace an id suffices
    spans = read_spans(normalise(world.span_frame()), MessageLog())
    assert [*stitch(spans).evidence.values()] == [evidence]
