"""What other systems of this kind got wrong, each as a test of ours.

Held elsewhere: a mask shorter than the response where the next prompt equals the context, a retry merged as a
continuation (``test_tokens``), 100,000 spans deep (``test_stitch``), unknown traces among scores (``test_rewards``),
two rewards with one name (``test_rewards``).
"""

import json
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import polars as pl
import pytest

from .converters_world import OPENING, TRANSITIONS, World, answers, asks, convert, loop, text, trace_id

TRACE = trace_id("t")


def plain_call(seen: Sequence[dict[str, Any]], said: dict[str, Any]) -> dict[str, Any]:
    """OpenTelemetry's attributes and nothing else: no ids of ours, no token ids, no scope."""
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.input.messages": json.dumps(list(seen)),
        "gen_ai.output.messages": json.dumps([said]),
    }


def test_plain_spans_of_nobodys_rollout_are_transitions() -> None:
    world = World()
    world.span("chat m", plain_call(OPENING, asks("c")), trace=TRACE)
    world.span("chat m", plain_call([*OPENING, asks("c"), answers("c", "1")], text("assistant", "1")), trace=TRACE)
    assert world.convert().transitions["step"].to_list() == [0, 1]


def test_a_tools_error_reaches_the_transition() -> None:
    world = World()
    world.call(OPENING, asks("c"), trace=TRACE)
    world.tool("c", "", trace=TRACE, exception=("ValueError", "boom"))
    world.call([*OPENING, asks("c"), answers("c", "it did not work")], text("assistant", "x"), trace=TRACE)
    row = world.convert().transitions.sort("step").row(0, named=True)
    (result,) = json.loads(row["tool_results"])
    assert (result["status"], result["error_type"], row["tool_error_count"]) == ("error", "ValueError", 1)


@pytest.mark.parametrize("names", [("primary", "efficiency"), ("primary", "primary"), ("a", "b")])
def test_two_rewards_after_the_last_call_judge_the_same_steps(names: tuple[str, str]) -> None:
    world = World()
    loop(world, "x", trace=TRACE)
    for name, value in zip(names, (1.0, 0.5), strict=True):
        told = {"agentlightning.reward.0.name": name, "agentlightning.reward.0.value": value}
        world.span("agentlightning.annotation", told, trace=TRACE)
    converted = world.convert()
    expected = 0.75 if names == ("a", "b") else 0.5 if names == ("primary", "primary") else 1.0
    assert converted.transitions["reward"].to_list() == [expected] * 3
    assert converted.episodes["reward"].to_list() == [expected]
    assert converted.rejected["reason"].to_list() == ["context", "context"]


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"agentlightning.reward.0.value": "NaN"}, "score_not_finite"),
        ({"agentlightning.reward.0.value": 3e38}, "score_out_of_range"),
        ({"gen_ai.evaluation.score.value": 1e308}, "score_out_of_range"),
        ({"agentops.task.output": '{"type": "reward", "value": 1e308}'}, "score_out_of_range"),
        ({"agentops.task.output": f'{{"type": "reward", "value": 1{"0" * 400}}}'}, "score_not_finite"),
    ],
)
def test_a_reward_that_is_no_score_in_a_span_is_rejected_by_name(attributes: dict[str, Any], reason: str) -> None:
    world = World()
    loop(world, "x", trace=TRACE)
    world.span("agentlightning.annotation", attributes, trace=TRACE)
    converted = world.convert()
    assert converted.transitions["reward"].to_list() == [None] * 3
    assert sorted(converted.rejected["reason"].to_list()) == ["context", reason]


def calls_of_python(world: World) -> int:
    """How many functions of the converters one conversion calls.

    Generators do not count: a state repeats its history, and joining what is there costs what its bytes cost.
    """
    spans, scores, generations = world.span_frame(), world.score_frame(), world.generation_frame()
    found = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal found
        code = frame.f_code
        found += event == "call" and "/spanloop/converters/" in code.co_filename and code.co_name != "<genexpr>"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        convert(spans, scores=scores, generations=generations)
    finally:
        sys.setprofile(before)
    return found


def conversation(turns: int, *, is_odd: bool) -> World:
    """One trace whose every prompt repeats its history; an odd one takes the long way through the converters."""
    world = World()
    seen = list(OPENING)
    for turn in range(turns):
        said = asks(f"c{turn}")
        world.call(seen, said, trace=TRACE)
        seen = [*seen, said, answers(f"c{turn}", "Error: boom" if is_odd and turn == 0 else "fine")]
    world.call(seen, text("assistant", "done"), trace=TRACE)
    return world


@pytest.mark.parametrize("is_odd", [False, True])
def test_work_is_linear_in_the_length_of_a_trace(*, is_odd: bool) -> None:
    short, long = (calls_of_python(conversation(turns, is_odd=is_odd)) for turns in (60, 240))
    assert long < 4.8 * short


def test_one_call_that_nobody_can_read_leaves_its_neighbours() -> None:
    world = World()
    for number in range(50):
        if number == 25:
            world.span("llm", {"acme.llm.completion_tokens": 3}, trace=TRACE, scope="acme")
        else:
            world.call([text("user", f"{number}")], text("assistant", "x"), trace=f"{number:032x}")
    converted = world.convert()
    assert converted.transitions.height == 49
    assert converted.rejected.select("reason", "trace_id").rows() == [("unsupported_dialect", TRACE)]


def test_prompt_tokens_are_never_trained_on_however_long_the_prompt_is() -> None:
    world = World()
    prompt = list(range(20_000))
    world.call(OPENING, asks("c"), trace=TRACE, response_id="r0")
    world.call([*OPENING, asks("c"), answers("c", "1")], text("assistant", "x"), trace=TRACE, response_id="r1")
    world.capture(prompt, [7], response_id="r0")
    world.capture([*prompt, 7, 8, 8], [9], response_id="r1")
    row = world.convert().trajectories.row(0, named=True)
    assert row["prompt_token_ids"] == prompt
    assert (row["response_token_ids"], row["loss_mask"]) == ([7, 8, 8, 9], [1, 0, 0, 1])


def test_agent_lightnings_own_traces_have_tokens_messages_agents_tools_and_rewards() -> None:
    """The form that its tracer and its proxy give them: no scope, numbered messages, ids beside them."""
    world = World()
    root = world.span("agent.session", {}, trace=TRACE)
    ids = [[1, 2, 3], [1, 2, 3, 4, 5, 9]]
    for turn in range(2):
        messages = {
            f"gen_ai.prompt.{number}.{key}": value
            for number, (role, content) in enumerate([("system", "s"), ("user", "q"), ("user", "r")][: 2 + turn])
            for key, value in (("role", role), ("content", content))
        }
        attributes = {
            "gen_ai.system": "OpenAI",
            "gen_ai.request.type": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.response.id": f"r{turn}",
            "prompt_token_ids": ids[turn],
            "response_token_ids": [4, 5],
            "logprobs.content": [{"token": "a", "logprob": -0.25}, {"token": "b", "logprob": -0.5}],
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": "y",
            "gen_ai.completion.0.finish_reason": "stop",
        }
        world.span("openai.chat.completion", attributes | messages, trace=TRACE, parent=root)
    raw = {
        "llm.hosted_vllm.id": "chatcmpl-7",
        "llm.hosted_vllm.prompt_token_ids": "[6, 7]",
        "llm.hosted_vllm.response_token_ids": "[[8]]",
    }
    world.span("raw_gen_ai_request", raw, trace=trace_id("proxy"))
    world.span("agentlightning.annotation", {"agentlightning.reward.0.value": "1.0"}, trace=TRACE)
    converted = world.convert()
    steps = converted.transitions.filter(pl.col("trace_id") == TRACE).sort("step")
    assert steps["response_token_ids"].to_list() == [[4, 5], [4, 5]]
    assert (steps["token_source"].unique().to_list(), steps["reward"].to_list()) == (["span"], [1.0, 1.0])
    assert steps["is_trainable"].all()
    assert converted.trajectories["loss_mask"].to_list() == [[1, 1, 0, 1, 1]]
    proxied = converted.transitions.filter(pl.col("trace_id") == trace_id("proxy")).row(0, named=True)
    assert (proxied["response_id"], proxied["prompt_token_ids"], proxied["response_token_ids"]) == (
        "chatcmpl-7",
        [6, 7],
        [8],
    )
    assert proxied["untrainable_reason"] == "missing_content"
    assert converted.transitions.schema == TRANSITIONS
