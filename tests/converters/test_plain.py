"""Plain episodes come out exactly as the long way gives them, and most episodes are plain."""

import json
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from spanloop.converters import Converted, Options, convert, frames
from spanloop.converters.attributes import Attributes
from spanloop.converters.attribution import RULES
from spanloop.converters.captures import read_generations
from spanloop.converters.normalise import normalise
from spanloop.converters.plain import read_plain
from spanloop.converters.span_tokens import tokens_in_spans

from . import converters_recordings as recordings
from .converters_world import OPENING, World, answers, asks, loop, text, trace_id
from .test_properties import worlds

LAWS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
THE_LONG_WAY = Options(rules=RULES._replace())
"""Rules that might be a caller's own."""

NAMES = sorted({path.stem for folder in (recordings.OWN, recordings.RECORDINGS) for path in folder.glob("*.json")})


def insist(
    spans: pl.DataFrame, scores: pl.DataFrame, generations: pl.DataFrame, logs: pl.DataFrame | None = None
) -> Converted:
    """Convert both ways, and insist that nothing differs."""
    got = convert(spans, scores=scores, generations=generations, logs=logs)
    expected = convert(spans, scores=scores, generations=generations, logs=logs, options=THE_LONG_WAY)
    for one, other in zip(got, expected, strict=True):
        assert_frame_equal(one, other, check_exact=True)
    return got


def insist_on(world: World) -> Converted:
    return insist(world.span_frame(), world.score_frame(), world.generation_frame())


def plain_traces(world: World) -> set[str]:
    """Trace ids of the episodes that took the short way, as far as the world by itself decides it."""
    spans = world.span_frame()
    bad = world.score_frame().filter(pl.col("value") < 1)
    found = read_plain(
        normalise(spans),
        read_generations(world.generation_frame()),
        tokens_in_spans(spans, Attributes(spans["SpanAttributes"])),
        bad,
        session_is_episode=False,
    )
    return set() if found is None else set(found.episodes["TraceId"])


@pytest.mark.parametrize("name", NAMES or ["none"])
def test_recordings_come_out_the_same_both_ways(name: str) -> None:
    recorded = recordings.load(name)
    spans = recordings.span_frame(recorded["spans"])
    world = World()
    for number, trace in enumerate(spans["TraceId"].unique().sort()):
        if number % 3:
            world.score(1.0, trace_id=trace)
    logs = recordings.log_frame(recorded.get("log_events", ()))
    insist(spans, world.score_frame(), frames.empty(frames.GENERATIONS), logs)


@LAWS
@given(worlds())
def test_any_spans_come_out_the_same_both_ways(world: World) -> None:
    insist_on(world)


TWISTS = (
    "edited",
    "retried",
    "text_too",
    "other_ids",
    "no_id",
    "numbers",
    "unicode",
    "written_arguments",
    "redacted",
    "tool_error",
    "silent_tool",
    "error_text",
    "same_query",
    "same_time",
    "overlap",
    "dropped",
    "length",
    "no_reason",
    "no_output",
    "two_choices",
    "user_again",
    "unknown_tool",
    "bad_tools",
    "extra_field",
    "null_reason",
    "scope",
    "below_a_call",
    "other_service",
    "odd_capture",
    "other_tokens",
    "no_capture",
    "twice_captured",
    "conversation",
    "http_below",
    "surrogate",
    "call_as_text",
    "system_later",
    "instructions",
    "envelope",
    "answers_itself",
    "compact",
    "silent",
    "half_silent",
    "same_response",
    "carried",
    "carried_whole",
    "odd_ids",
    "other_agent",
)


@st.composite
def lanes(draw: st.DrawFn) -> World:
    """Conversations that are plain but for a twist here and there, in traces of their own or together."""
    world = World()
    shared = trace_id("together")
    states: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 3))):
        question = draw(st.sampled_from([f"question {number}", f"question {number} ", "the same", "q"]))
        trace = draw(st.sampled_from([trace_id(f"lane {number}"), trace_id(f"lane {number}"), shared]))
        marks = draw(st.sampled_from([{}, {}, {"spanloop.episode.id": f"e{number}"}, {"spanloop.task.id": "task"}]))
        states.append(
            {
                "name": f"l{number}",
                "trace": trace,
                "seen": [text("system", "Be kind."), text("user", question)],
                "prompt": [1, 2, number],
                "step": 0,
                "captures": draw(st.booleans()),
                "carries": draw(st.sampled_from(["", "", "ids", "all"])),
                "is_silent": draw(st.sampled_from([False, False, True])),
                "marks": marks,
                "agent": world.span("agent", {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"},
                                    trace=trace, span_id=f"{number + 1:x}a"),
                "length": draw(st.integers(1, 4)),
            }
        )  # fmt: skip
    twists = draw(st.lists(st.sampled_from(TWISTS), max_size=2))
    while waiting := [state for state in states if state["step"] < state["length"]]:
        is_due = draw(st.booleans())
        twist = twists.pop() if twists and is_due else ""
        _step(world, draw(st.sampled_from(waiting)), twist)
    for state in states:
        value = draw(st.sampled_from([None, 1.0, 1.0, 0.0, float("nan")]))
        if value is not None:
            world.score(value, trace_id=state["trace"], label=draw(st.sampled_from(["", "", "passed", "fail"])))
        if draw(st.integers(0, 5)) == 0:
            world.score(0.7, response_id=f"r-{state['name']}-0", name=draw(st.sampled_from(["reward", "style"])))
    return world


def _step(world: World, state: dict[str, Any], twist: str) -> None:  # noqa: C901, PLR0912, PLR0915 - a list of twists
    name, step, trace = state["name"], state["step"], state["trace"]
    state["step"] += 1
    is_last = state["step"] == state["length"]
    identity = "" if twist == "no_id" else f"{name}-{step}"
    query: Any = {"query": "again" if twist == "same_query" else identity}
    if twist == "numbers":
        query |= {"limit": 1e16, "big": 10**30, "deep": {"a": [1.0, None]}}
    if twist == "unicode":
        query |= {"query": "naïve ☃ \u2028 \x7f \x01 😀"}
    said = text("assistant", f"{name} is done.") if is_last else asks(identity, arguments=query)
    if twist == "written_arguments" and not is_last:
        said = asks(identity, arguments=json.dumps(query))
    if twist == "text_too":
        said = {**said, "parts": [text("assistant", "well ")["parts"][0], *said["parts"]]}
    if twist == "unknown_tool" and not is_last:
        said = asks(identity, name="nothing")
    if twist == "call_as_text" and is_last:
        said = text("assistant", '{"name": "search", "arguments": {}}')
    if twist == "answers_itself":
        said = {**said, "parts": [*said["parts"], *answers(identity, "mine")["parts"]]}
    if twist == "surrogate":
        said = {**said, "parts": [*said["parts"], {"type": "text", "content": "\ud800"}]}
    seen = list(state["seen"])
    if twist == "edited":
        seen[1] = text("user", "something else")
    if twist == "system_later":
        seen.append(text("system", "by the way"))
    if twist == "user_again":
        seen.append(text("user", "and now?"))
    if twist == "redacted":
        seen.append(text("user", "[REDACTED]"))
    attributes = dict(state["marks"])
    if twist == "instructions":
        attributes["gen_ai.system_instructions"] = '[{"type": "text", "content": "Be brief."}]'
    if twist == "conversation":
        attributes["gen_ai.conversation.id"] = "talk"
    if twist == "bad_tools":
        attributes["gen_ai.tool.definitions"] = "no json"
    if twist == "no_reason":
        attributes["gen_ai.response.finish_reasons"] = ""
    if twist in {"extra_field", "null_reason", "two_choices"}:
        extra = {"name": "x"} if twist == "extra_field" else {"finish_reason": None}
        attributes["gen_ai.output.messages"] = json.dumps(
            [{**said, **extra}, *([said] if twist == "two_choices" else [])]
        )
    if twist == "compact":
        attributes["gen_ai.output.messages"] = json.dumps([{**said, "finish_reason": "stop"}], separators=(",", ":"))
    attributes |= _content_and_ids(state, twist)
    if twist == "other_agent":
        attributes["gen_ai.agent.name"] = "b"
    where: dict[str, Any] = {"trace": trace, "parent": state["agent"], "attributes": attributes}
    where["scope"] = "another" if twist == "scope" else "one"
    where["dropped"] = int(twist == "dropped")
    where["service"] = "elsewhere" if twist == "other_service" else "app"
    where["error"] = "boom" if twist == "no_output" else ""
    if twist in {"same_time", "overlap"}:
        where["start_s"] = max(0.0, world.clock_s - (1.1 if twist == "same_time" else 0.8))
    if twist == "below_a_call" and "last" in state:
        where["parent"] = state["last"]
    answered = None if twist == "no_output" else said
    response_id = "r" if twist == "same_response" else f"r-{name}-{step}"
    finish = "length" if twist == "length" else ""
    span = world.call(seen, answered, finish=finish, response_id=response_id, **where)
    if twist == "retried":
        world.call(seen, answered, response_id=response_id + "-again", **where)
    state["last"] = span
    if twist == "http_below":
        world.span("POST", {}, trace=trace, parent=span)
    _tool(world, state, identity, twist, is_last=is_last)
    result = "Error: no" if twist == "error_text" else f"result {step} of {name}"
    own = identity if twist != "other_ids" else identity + "-else"
    history = asks(own, arguments=query) if twist == "other_ids" and not is_last else said
    state["seen"] = [*seen, history, answers(own, result)]
    _capture(world, state, twist, response_id, span)


def _content_and_ids(state: dict[str, Any], twist: str) -> dict[str, Any]:
    """What a call leaves out of its content, and the ids that it carries."""
    found: dict[str, Any] = {}
    if state.get("is_silent", False) != (twist == "silent"):
        found |= {"gen_ai.input.messages": "", "gen_ai.output.messages": ""}
    if twist == "half_silent":
        found["gen_ai.input.messages"] = ""
    carries = {"carried": "ids", "carried_whole": "all"}.get(twist, state.get("carries", ""))
    if carries:
        found |= {"prompt_token_ids": state["prompt"], "response_token_ids": f"[[7, 8, {state['step']}]]"}
    if carries == "all":
        found["response_logprobs"] = [-0.5, -0.25, -1.0]
    if twist == "odd_ids":
        found["prompt_token_ids"] = "[1, 2, oops]"
    return found


def _tool(world: World, state: dict[str, Any], identity: str, twist: str, *, is_last: bool) -> None:
    if is_last or twist == "silent_tool":
        return
    result = '{"output": "held", "kwargs": {}}' if twist == "envelope" else "ok"
    error = "boom" if twist == "tool_error" else ""
    world.tool(identity, result, trace=state["trace"], parent=state["agent"], error=error)


def _capture(world: World, state: dict[str, Any], twist: str, response_id: str, span: str) -> None:
    response = [7, 8, state["step"]]
    if state["captures"] and twist != "no_capture":
        prompt = [5, *state["prompt"]] if twist == "other_tokens" else state["prompt"]
        logprobs = [-1.0] if twist == "odd_capture" else None
        where: dict[str, Any] = {"trace": state["trace"], "parent": span}
        world.capture(prompt, response, response_id=response_id, logprobs=logprobs, **where)
        if twist == "twice_captured":
            world.capture(prompt, response, response_id=response_id, generation_id=f"{response_id}/again", **where)
    state["prompt"] = [*state["prompt"], *response, 9]


@LAWS
@given(lanes())
def test_almost_plain_episodes_come_out_the_same_both_ways(world: World) -> None:
    insist_on(world)


@pytest.mark.parametrize("twist", ["", *TWISTS])
def test_every_twist_comes_out_the_same_both_ways(twist: str) -> None:
    world = World()
    for number in range(3):
        trace, opening = trace_id(f"t{number // 2}"), [text("system", "Be kind."), text("user", f"q{number}")]
        agent = world.span("agent", {"gen_ai.agent.name": "a", "gen_ai.operation.name": "invoke_agent"}, trace=trace)
        state: dict[str, Any] = {
            "name": f"l{number}", "trace": trace, "seen": opening, "prompt": [1, number], "step": 0, "captures": True,
            "marks": {}, "agent": agent, "length": 5,
        }  # fmt: skip
        for step in range(5):
            _step(world, state, twist if number == 0 and step in {2, 4} else "")
    insist_on(world)


def test_captures_may_come_in_any_order_and_again() -> None:
    world = World()
    for name in ("one", "two"):
        trace, prompt = trace_id(name), [1, 2]
        seen = [text("user", name)]
        for step in range(3):
            said = asks(f"{name}-{step}")
            span = world.call(seen, said, trace=trace, response_id=f"r-{name}-{step}")
            world.tool(f"{name}-{step}", "ok", trace=trace)
            response = [step, 7]
            for stale in (True, False):
                world.capture(
                    prompt,
                    [9, 9] if stale else response,
                    response_id=f"r-{name}-{step}",
                    trace=trace,
                    parent=span,
                    generation_id=f"g-{name}-{step}",
                )
                world.generations[-1] |= {"sampling": [{"key": "top_k", "value": f"{step} {stale}"}]}
                world.generations[-1]["ingested_at"] += 0 if stale else 1
            prompt = [*prompt, *response, 5]
            seen = [*seen, said, answers(f"{name}-{step}", "ok")]
    world.generations.reverse()
    assert plain_traces(world) == {trace_id("one"), trace_id("two")}
    converted = insist_on(world)
    assert converted.trajectories.height == 2
    assert converted.transitions["sampling"].map.get("top_k").to_list() == ["0 False", "1 False", "2 False"] * 2


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("carries", ["", "ids", "all"])
def test_calls_without_content_and_with_ids_of_their_own_are_plain(carries: str, *, is_silent: bool) -> None:
    world = World()
    for number in range(3):
        trace = trace_id(f"t{number}")
        agent = world.span("agent", {"gen_ai.agent.name": "a", "gen_ai.operation.name": "invoke_agent"}, trace=trace)
        state: dict[str, Any] = {
            "name": f"l{number}", "trace": trace, "seen": [text("user", f"q{number}")], "prompt": [1, number],
            "step": 0, "captures": False, "marks": {}, "agent": agent, "length": 4, "carries": carries,
            "is_silent": is_silent,
        }  # fmt: skip
        for _ in range(4):
            _step(world, state, "")
        world.score(1.0, trace_id=trace)
    assert plain_traces(world) == {trace_id(f"t{number}") for number in range(3)}
    converted = insist_on(world)
    reason = "missing_content" if is_silent else "missing_logprobs" if carries == "ids" else ""
    assert set(converted.transitions["untrainable_reason"]) == {reason}
    assert converted.transitions["prompt_token_ids"].list.len().to_list() == (
        [2, 6, 10, 14] * 3 if carries else [0] * 12
    )
    assert converted.trajectories.height == (3 if carries == "all" else 0)


def test_what_worked_is_plain() -> None:
    world = World()
    for name in ("one", "two"):
        loop(world, name, trace=trace_id(name), opening=[OPENING[0], text("user", name)])
    loop(world, "beside one", trace=trace_id("one"), opening=[OPENING[0], text("user", "and this?")])
    world.score(1.0, trace_id=trace_id("one"))
    assert plain_traces(world) == {trace_id("one"), trace_id("two")}
    insist_on(world)


def test_an_agent_used_as_a_tool_and_its_caller_are_not() -> None:
    world = World()
    seen = [text("user", "Plan it.")]
    said = asks("call", arguments={"task": "Find it."})
    world.call(seen, said, trace=trace_id("caller"))
    world.call([text("user", "Find it.")], text("assistant", "Found."), trace=trace_id("helper"))
    world.call([*seen, said, answers("call", "Found.")], text("assistant", "Done."), trace=trace_id("caller"))
    loop(world, "other", trace=trace_id("other"))
    assert plain_traces(world) == {trace_id("other")}
    assert insist_on(world).episodes.height == 2


def test_a_call_elsewhere_that_goes_on_with_a_plain_episode_takes_it_along() -> None:
    world = World()
    seen, said = [text("user", "Hello.")], text("assistant", "Hello to you.")
    world.call(seen, said, trace=trace_id("begun"))
    later = [*seen, said, text("user", "And now?")]
    world.call(later, text("assistant", "Nothing."), trace=trace_id("later"))
    assert plain_traces(world) == {trace_id("begun")}
    assert insist_on(world).episodes.height == 1
