"""What belongs to one episode, in the attributes of several instrumentors: sub-agents, links, clocks, answers lost."""

from typing import Any

import polars as pl
import pytest

from spanloop.converters import Converted, convert, frames

from .converters_world import Message, World, answers, asks, text, trace_id
from .dialect_calls import DIALECTS, call_in

in_each_dialect = pytest.mark.parametrize("dialect", DIALECTS)

TASK = "Refund 10 EUR."
ANSWER = "Refunded 10 EUR."
PLANNER = [text("system", "You plan."), text("user", "Sort this out.")]
WORKER = [text("system", "You work."), text("user", TASK)]


def shape(world: World) -> list[tuple[int, int]]:
    """Steps and traces of each episode."""
    episodes = world.convert().episodes.sort("started_at", "episode_id")
    return [(steps, len(traces)) for steps, traces in episodes.select("step_count", "trace_ids").iter_rows()]


def order(world: World) -> list[str]:
    """The answers of an only episode, by step."""
    converted = world.convert()
    assert converted.episodes.height == 1
    return converted.transitions.sort("step")["span_id"].to_list()


def attempt(
    world: World, dialect: str, name: str, *, start_s: float, traces: tuple[str, str], ids: str = "both"
) -> None:
    """A planner that asks a worker, each perhaps in a trace of its own; calls, answers or none of them have ids."""
    identity = f"call_{name}" if ids == "both" else ""
    ask = asks("call_1" if ids == "calls" else identity, "ask_worker", {"task": TASK})
    planner, worker = traces
    call_in(world, dialect, PLANNER, ask, trace=planner, start_s=start_s)
    call_in(world, dialect, WORKER, text("assistant", ANSWER), trace=worker, start_s=start_s + 1)
    seen = [*PLANNER, ask, answers(identity, ANSWER)]
    call_in(world, dialect, seen, text("assistant", "Done."), trace=planner, start_s=start_s + 2)


@in_each_dialect
@pytest.mark.parametrize("apart_s", [0.0, 0.001, 0.2])
def test_a_sub_agent_belongs_to_the_caller_of_its_own_trace(dialect: str, apart_s: float) -> None:
    world = World()
    for number in range(4):
        trace = trace_id(f"attempt {number}")
        attempt(world, dialect, f"{number}", start_s=10 + apart_s * number, traces=(trace, trace))
    assert shape(world) == [(3, 1)] * 4


@in_each_dialect
def test_a_caller_that_was_sent_no_answer_keeps_its_sub_agent(dialect: str) -> None:
    world = World()
    for number in range(2):
        trace = trace_id(f"attempt {number}")
        attempt(world, dialect, f"{number}", start_s=10 + number / 10, traces=(trace, trace))
    del world.spans[2]
    assert sorted(shape(world)) == [(2, 1), (3, 1)]


@in_each_dialect
def test_each_attempt_takes_one_sub_agent_of_another_trace(dialect: str) -> None:
    world = World()
    for number in range(3):
        traces = trace_id(f"planner {number}"), trace_id(f"worker {number}")
        attempt(world, dialect, f"{number}", start_s=10 + number / 10, traces=traces)
    assert shape(world) == [(3, 2)] * 3


@in_each_dialect
@pytest.mark.parametrize("ids", ["calls", "none"])
def test_a_sub_agent_is_joined_by_answers_without_ids(dialect: str, ids: str) -> None:
    world = World()
    attempt(world, dialect, "", start_s=10, traces=(trace_id("planner"), trace_id("worker")), ids=ids)
    assert shape(world) == [(3, 2)]


def delegation(
    world: World, dialect: str, *, links: list[tuple[str, str]] | None = None, planner: Any = None, worker: Any = None
) -> None:
    """A planner's tool call, and a worker of another service, in a trace of its own, that perhaps links to it."""
    parent, child = trace_id("planner"), trace_id("worker")
    ask = asks("call_1", "send", {"text": "in other words"})
    call_in(world, dialect, PLANNER, ask, trace=parent, start_s=10, span_id="a1" * 8, attributes=planner)
    world.tool("call_1", "ok", trace=parent, name="send", start_s=11, duration_s=3, span_id="a2" * 8)
    world.span("invoke_agent worker", {}, trace=child, start_s=11.5, duration_s=2, links=links or [], span_id="b0" * 8)
    where: dict[str, Any] = {"trace": child, "service": "worker", "attributes": worker, "parent": "b0" * 8}
    call_in(world, dialect, WORKER, text("assistant", "Fine."), start_s=12, **where)
    seen = [*PLANNER, ask, answers("call_1", "ok")]
    call_in(world, dialect, seen, text("assistant", "Done."), trace=parent, start_s=15, attributes=planner)


TOOL_SPAN = (trace_id("planner"), "a2" * 8)
CALL_SPAN = (trace_id("planner"), "a1" * 8)
C1 = {"gen_ai.conversation.id": "6f1d9c52-0b7e-4a38-9d24-c8e5a1f07b36", "session.id": "x"}
C2 = {"gen_ai.conversation.id": "0d4b7c1e-93fa-4c52-8e06-5b1f9a27d3c8", "session.id": "x"}


@in_each_dialect
@pytest.mark.parametrize("target", [TOOL_SPAN, CALL_SPAN])
def test_a_link_to_a_stored_span_joins(dialect: str, target: tuple[str, str]) -> None:
    world = World()
    delegation(world, dialect, links=[target])
    assert shape(world) == [(3, 2)]


@in_each_dialect
def test_no_link_and_a_link_to_a_span_that_is_not_stored_join_nothing(dialect: str) -> None:
    for links in ([], [(trace_id("planner"), "f" * 16)], [(trace_id("elsewhere"), "a2" * 8)]):
        world = World()
        delegation(world, dialect, links=links)
        assert shape(world) == [(2, 1), (1, 1)]


NAMED: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, str]]] = {
    "two episodes": ({"spanloop.episode.id": "one"}, {"spanloop.episode.id": "two"}, TOOL_SPAN),
    "two tasks": ({"spanloop.task.id": "one"}, {"spanloop.task.id": "two"}, TOOL_SPAN),
}


@in_each_dialect
@pytest.mark.parametrize("name", NAMED)
def test_a_link_joins_no_two_identities(dialect: str, name: str) -> None:
    planner, worker, target = NAMED[name]
    world = World()
    delegation(world, dialect, links=[target], planner=planner, worker=worker)
    assert len(shape(world)) == 2


@pytest.mark.parametrize(("target", "episodes"), [(CALL_SPAN, 2), (TOOL_SPAN, 1)])
def test_a_link_joins_two_conversations_only_behind_a_tool_call(target: tuple[str, str], episodes: int) -> None:
    world = World()
    delegation(world, "otel_genai", links=[target], planner=C1, worker=C2)
    assert len(shape(world)) == episodes


@in_each_dialect
def test_a_link_to_a_named_episode_joins_it(dialect: str) -> None:
    world = World()
    delegation(world, dialect, links=[TOOL_SPAN], planner={"spanloop.episode.id": "one"})
    span = next(row for row in world.spans if row["SpanId"] == "a2" * 8)
    span["SpanAttributes"] = [*span["SpanAttributes"], {"key": "spanloop.episode.id", "value": "one"}]
    assert world.convert().episodes["episode_id"].to_list() == ["one"]


def messages(count: int) -> list[list[Message]]:
    return [[text("system", "You answer."), text("user", f"message {number}")] for number in range(count)]


@in_each_dialect
@pytest.mark.parametrize("is_one_span", [True, False])
def test_a_consumer_of_many_traces_joins_none_of_them(dialect: str, *, is_one_span: bool) -> None:
    """A program that reads a queue links to each message's trace, in one span or in one span for each."""
    world = World()
    links = [(trace_id(f"producer {number}"), f"{number + 1:016x}") for number in range(200)]
    for (trace, span_id), seen in zip(links, messages(200), strict=True):
        call_in(world, dialect, seen, text("assistant", "queued"), trace=trace, span_id=span_id)
    consumer = trace_id("consumer")
    for number, linked in enumerate([links] if is_one_span else [[link] for link in links]):
        world.span("process", {}, trace=consumer, links=linked, span_id=f"c{number:015x}")
    call_in(world, dialect, [text("user", "Sum up.")], text("assistant", "All done."), trace=consumer)
    assert shape(world) == [(1, 1)] * 201


@in_each_dialect
def test_a_trace_without_a_model_call_joins_no_two_with_one(dialect: str) -> None:
    """A producer, or the run of a data set, to which many attempts link."""
    world = World()
    world.span("publish", {}, trace=trace_id("producer"), span_id="a" * 16)
    for number, seen in enumerate(messages(3)):
        trace = trace_id(f"attempt {number}")
        root = world.span("process", {}, trace=trace, links=[(trace_id("producer"), "a" * 16)])
        call_in(world, dialect, seen, text("assistant", "x"), trace=trace, parent=root)
    assert shape(world) == [(1, 1)] * 3


@in_each_dialect
def test_attempts_at_one_task_that_link_to_one_span_stay_apart(dialect: str) -> None:
    world = World()
    trace = trace_id("launcher")
    call_in(world, dialect, [text("user", "Start.")], text("assistant", "Started."), trace=trace, span_id="a" * 16)
    for number in range(3):
        own = trace_id(f"attempt {number}")
        call_in(world, dialect, PLANNER, text("assistant", f"x{number}"), trace=own, links=[(trace, "a" * 16)])
    assert shape(world) == [(1, 1)] * 4


@in_each_dialect
def test_turns_that_link_to_the_turn_before_are_one_episode(dialect: str) -> None:
    world = World()
    for number in range(4):
        linked = [(trace_id(f"turn {number - 1}"), f"{number - 1:016x}")] if number else []
        seen = [text("user", f"part {number} of the prompt")]
        where: dict[str, Any] = {"trace": trace_id(f"turn {number}"), "span_id": f"{number:016x}", "links": linked}
        call_in(world, dialect, seen, text("assistant", "x"), **where)
    assert shape(world) == [(4, 4)]


def remote(
    dialect: str,
    *,
    skew_s: float,
    service: str = "worker",
    linked: bool = False,
    tool_s: float = 5.0,
    detached: bool = False,
) -> World:
    """A tool's call that another process carries out with two model calls, by a clock that is ``skew_s`` ahead."""
    world = World()
    trace = trace_id("planner")
    other = trace_id("worker") if linked else trace
    ask = asks("call_1", "ask_worker", {"task": TASK})
    root = world.span("invoke_agent", {}, trace=trace, start_s=100, duration_s=10, span_id="a0" * 8)
    call_in(world, dialect, PLANNER, ask, trace=trace, start_s=100.1, parent=root, span_id="a1" * 8)
    tool = world.tool(
        "call_1", ANSWER, trace=trace, name="ask_worker", start_s=101, duration_s=tool_s, parent=root, span_id="a2" * 8
    )
    where: dict[str, Any] = {"trace": other, "service": service}
    begin_s = 101.5 + skew_s
    place: dict[str, Any] = {"links": [(trace, tool)]} if linked else {"parent": root if detached else tool}
    inner = world.span("worker", {}, start_s=begin_s, duration_s=4, span_id="b0" * 8, **where, **place)
    look = asks("call_2", "look")
    call_in(world, dialect, WORKER, look, start_s=begin_s + 0.1, parent=inner, span_id="b1" * 8, **where)
    world.tool("call_2", "42", name="look", start_s=begin_s + 1, parent=inner, span_id="b2" * 8, **where)
    seen = [*WORKER, look, answers("call_2", "42")]
    said = text("assistant", ANSWER)
    call_in(world, dialect, seen, said, start_s=begin_s + 2, parent=inner, span_id="b3" * 8, **where)
    seen = [*PLANNER, ask, answers("call_1", ANSWER)]
    call_in(world, dialect, seen, text("assistant", "Done."), trace=trace, start_s=107, parent=root, span_id="a3" * 8)
    return world


BY_THE_TREE = ["a1" * 8, "b1" * 8, "b3" * 8, "a3" * 8]


@in_each_dialect
@pytest.mark.parametrize("skew_s", [0.0, 90.0, -90.0, 2.5, -2.5, 0.4])
@pytest.mark.parametrize("linked", [False, True])
def test_clocks_that_differ_do_not_change_order_and_duration(dialect: str, skew_s: float, *, linked: bool) -> None:
    world = remote(dialect, skew_s=skew_s, linked=linked)
    assert order(world) == BY_THE_TREE
    assert world.convert().episodes["duration_ns"].item() == 10_000_000_000


@in_each_dialect
@pytest.mark.parametrize("skew_s", [90.0, -90.0])
def test_two_processes_of_one_service_are_ordered_by_the_tree(dialect: str, skew_s: float) -> None:
    assert order(remote(dialect, skew_s=skew_s, service="app")) == BY_THE_TREE


def test_what_a_tool_did_not_wait_for_keeps_its_time() -> None:
    """A job that a tool only puts into a queue, and one that the agent starts beside its own calls."""
    at_the_end = ["a1" * 8, "a3" * 8, "b1" * 8, "b3" * 8]
    assert order(remote("otel_genai", skew_s=90, tool_s=0.2)) == at_the_end
    assert order(remote("otel_genai", skew_s=90, service="app", detached=True)) == at_the_end


def test_a_call_back_into_the_first_process_keeps_its_own_clock() -> None:
    world = remote("otel_genai", skew_s=90)
    trace = trace_id("planner")
    world.span("callback", {}, trace=trace, parent="b0" * 8, start_s=102, duration_s=0.5, span_id="c0" * 8)
    seen = [text("user", "Check it.")]
    said = text("assistant", "Checked.")
    call_in(world, "otel_genai", seen, said, trace=trace, parent="c0" * 8, start_s=102.1, duration_s=0.2)
    converted = world.convert()
    started = converted.transitions.sort("step")["started_at"].dt.second().to_list()
    assert started == sorted(started)
    assert converted.episodes["duration_ns"].item() == 10_000_000_000


def two_programs(
    dialects: tuple[str, str],
    *,
    whole: bool = True,
    response_ids: tuple[str, str] = ("", ""),
    answer: Message | None = None,
    silent: bool = False,
) -> World:
    """Two programs of one service that send the same prompt at the same time, and get the same answer."""
    world = World()
    said = answer or text("assistant", "Hello!")
    for number, (dialect, response_id) in enumerate(zip(dialects, response_ids, strict=True)):
        trace = trace_id(f"program {number}")
        root = world.span("run", {}, trace=trace, start_s=9, duration_s=9) if whole else ""
        ids: dict[str, Any] = {"gen_ai.response.id": response_id, "llm.response_id": response_id} if response_id else {}
        where: dict[str, Any] = {"trace": trace, "parent": root, "start_s": 10 + number, "duration_s": 5 - 3 * number}
        seen = [text("system", "You greet."), text("user", "Hello?")]
        if silent and number:
            values = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny", **ids}
            world.span("chat tiny", values, scope="sdk", **where)
        else:
            call_in(world, dialect, seen, said, attributes=ids, **where)
    return world


PAIRS = [("otel_genai", "openinference"), ("openinference", "traceloop"), ("traceloop", "otel_genai")]


@pytest.mark.parametrize("dialects", PAIRS)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("response_ids", [("", ""), ("chatcmpl-1", "chatcmpl-1"), ("1", "1")])
def test_one_prompt_of_two_programs_is_two_calls(
    dialects: tuple[str, str], response_ids: tuple[str, str], *, whole: bool
) -> None:
    assert shape(two_programs(dialects, whole=whole, response_ids=response_ids)) == [(1, 1), (1, 1)]


@pytest.mark.parametrize("dialects", PAIRS)
def test_counted_ids_of_tool_calls_make_no_two_programs_one(dialects: tuple[str, str]) -> None:
    world = two_programs(dialects, answer=asks("call_1", arguments={"query": "x"}))
    assert shape(world) == [(1, 1), (1, 1)]


@pytest.mark.parametrize("dialects", PAIRS)
def test_a_unique_response_id_names_one_call_of_two_tracers(dialects: tuple[str, str]) -> None:
    unique = "chatcmpl-9a1d3c52b0f7e4a38d24c8e5a1f07b36"
    world = World()
    seen = [text("user", "Hello?")]
    for number, dialect in enumerate(dialects):
        where: dict[str, Any] = {"trace": trace_id(f"t{number}"), "start_s": 10 + number / 10, "duration_s": 2 - number}
        ids = {"gen_ai.response.id": unique, "output.value": f'{{"id": "{unique}"}}'}
        call_in(world, dialect, seen, text("assistant", "Hello!"), attributes=ids, **where)
    assert world.convert().transitions.height == 1


@pytest.mark.parametrize("dialects", PAIRS)
def test_a_call_alone_within_an_equal_one_of_a_program_is_that_call(dialects: tuple[str, str]) -> None:
    world = two_programs(dialects)
    lone = world.spans.pop()
    world.spans.append({**lone, "ParentSpanId": "", "TraceId": trace_id("alone")})
    del world.spans[2]
    assert world.convert().transitions.height == 1


@pytest.mark.parametrize(("values", "calls"), [(("7", "7"), 1), (("7", "8"), 2), (("7", ""), 2)])
def test_two_calls_alone_are_one_of_two_tracers_only_in_one_process(values: tuple[str, str], calls: int) -> None:
    world = two_programs(("openinference", "otel_genai"), whole=False)
    assert in_processes(world, "process.pid", values).transitions.height == calls


def in_processes(world: World, name: str, values: tuple[str, str]) -> Converted:
    resources = [[{"key": name, "value": value}] if name and value else [] for value in values]
    spans = world.span_frame().with_columns(pl.Series("ResourceAttributes", resources, dtype=frames.STRING_ITEMS))
    return convert(spans, scores=frames.empty(frames.SCORES), generations=frames.empty(frames.GENERATIONS))


@pytest.mark.parametrize("response_ids", [("", ""), ("1", "1")])
@pytest.mark.parametrize("differs", [("process.pid", "7", "8"), ("service.instance.id", "a", "b"), ("", "", "")])
def test_a_call_without_content_is_not_that_of_another_process(
    response_ids: tuple[str, str], differs: tuple[str, str, str]
) -> None:
    world = two_programs(("openinference", "otel_genai"), whole=False, response_ids=response_ids, silent=True)
    converted = in_processes(world, differs[0], differs[1:])
    assert converted.transitions.height == (2 if differs[0] else 1)


NO_ANSWER: Message = {"role": "assistant", "parts": []}
BARE: dict[str, dict[str, Any]] = {
    "an object without parts": {"gen_ai.output.messages": '[{"role": "assistant", "parts": []}]'},
    "an empty object": {"gen_ai.output.messages": "[{}]"},
    "an object without a role": {"gen_ai.output.messages": '[{"finish_reason": "stop"}]'},
}


def unrecorded(dialect: str, *, apart: bool, said: Message, attributes: dict[str, Any] | None = None) -> World:
    """A loop whose first answer is an empty object."""
    world = World()
    ask = asks("call_1", arguments={"query": "x"})
    traces = [trace_id(f"t{number if apart else 0}") for number in range(2)]
    call_in(world, dialect, PLANNER, said, trace=traces[0], attributes=attributes)
    seen = [*PLANNER, ask, answers("call_1", "42")]
    call_in(world, dialect, seen, text("assistant", "Done."), trace=traces[1])
    return world


@in_each_dialect
@pytest.mark.parametrize("apart", [False, True])
def test_an_empty_answer_is_one_that_was_not_recorded(dialect: str, *, apart: bool) -> None:
    converted = unrecorded(dialect, apart=apart, said=NO_ANSWER).convert()
    steps = converted.transitions.sort("step")
    assert converted.episodes["step_count"].to_list() == [2]
    assert "call_1" in steps["action"][0]
    assert "42" in steps["tool_results"][0]
    assert steps["untrainable_reason"].to_list() == ["missing_content", ""]


@pytest.mark.parametrize("name", BARE)
def test_an_empty_answer_object_is_no_answer_whatever_it_lacks(name: str) -> None:
    converted = unrecorded("otel_genai", apart=True, said=NO_ANSWER, attributes=BARE[name]).convert()
    assert converted.episodes["step_count"].to_list() == [2]
    assert "call_1" in converted.transitions.sort("step")["action"][0]


@in_each_dialect
def test_an_empty_answer_that_no_later_call_tells_is_not_trained_on(dialect: str) -> None:
    world = World()
    call_in(world, dialect, PLANNER, NO_ANSWER, trace=trace_id("t"))
    assert world.convert().transitions["untrainable_reason"].to_list() == ["missing_content"]
