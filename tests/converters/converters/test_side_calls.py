"""Model calls beside the agent: titles, moderation, embeddings, judges. They never decide, score or end an episode."""

from typing import Any

import polars as pl
import pytest

from spanloop.converters import convert, frames

from .converters_world import OPENING, Message, World, answers, asks, text, trace_id
from .dialect_calls import DIALECTS, call_in

TRACE = trace_id("side")
ROOT, AGENT = "00000000000000a0", "00000000000000a1"
in_each_dialect = pytest.mark.parametrize("dialect", DIALECTS)
ASK = asks("c1", "save", {"x": 1})
LIMITED = ("openai.RateLimitError", "Error code: 429 - slow down")
SIDE_REQUESTS: dict[str, list[Message]] = {
    "title": [text("system", "Name this conversation."), text("user", "user: What is the weather in Paris?")],
    "tags": [text("user", "Suggest three tags for: What is the weather in Paris?")],
    "moderation": [text("system", "Is this harmful?"), text("user", "It rains.")],
}


def agent(world: World, dialect: str, **where: Any) -> list[str]:
    """An agent's two model calls around a tool, below a span of its own."""
    world.span("app", {}, trace=TRACE, span_id=ROOT, start_s=0, duration_s=30)
    world.span("run", {}, trace=TRACE, span_id=AGENT, parent=ROOT, start_s=0.1, duration_s=5)
    first = call_in(world, dialect, OPENING, ASK, trace=TRACE, parent=AGENT, start_s=0.2, **where)
    world.tool("c1", "saved", trace=TRACE, name="save", parent=AGENT, start_s=1)
    seen = [*OPENING, ASK, answers("c1", "saved")]
    return [first, call_in(world, dialect, seen, text("assistant", "It rains."), trace=TRACE, parent=AGENT, start_s=2)]


@in_each_dialect
@pytest.mark.parametrize("start_s", [0.3, 2.1, 8], ids=["beside the first call", "beside the last call", "after it"])
@pytest.mark.parametrize("request_", SIDE_REQUESTS.values(), ids=SIDE_REQUESTS)
def test_a_side_call_that_fails_decides_nothing(dialect: str, request_: list[Message], start_s: float) -> None:
    world = World()
    agent(world, dialect)
    call_in(world, dialect, request_, None, trace=TRACE, parent=ROOT, start_s=start_s, exception=LIMITED)
    found = world.convert()
    assert found.failures.select("error_class", "is_recovered").rows() == [("rate_limit", True)]
    assert found.episodes.select("outcome", "is_terminated", "error_class").rows() == [("unknown", True, "")]
    assert found.transitions.filter("is_trainable").height == 2


@in_each_dialect
def test_a_side_call_that_fails_excuses_no_wrong_answer(dialect: str) -> None:
    world = World()
    _, last = agent(world, dialect)
    call_in(world, dialect, SIDE_REQUESTS["title"], None, trace=TRACE, parent=ROOT, start_s=8, exception=LIMITED)
    world.score(0.0, trace_id=TRACE)
    found = world.convert()
    assert found.episodes.select("error_class", "fault_owner").rows() == [("wrong_answer", "policy")]
    [culprit] = found.failures.filter(pl.col("error_class") == "wrong_answer")["span_id"]
    assert culprit == last


@in_each_dialect
@pytest.mark.parametrize("request_", SIDE_REQUESTS.values(), ids=SIDE_REQUESTS)
def test_a_side_call_that_works_ends_and_scores_nothing(dialect: str, request_: list[Message]) -> None:
    world = World()
    _, last = agent(world, dialect)
    side = call_in(world, dialect, request_, text("assistant", "Weather"), trace=TRACE, parent=ROOT, start_s=8)
    world.score(1.0, trace_id=TRACE)
    steps = world.convert().transitions.sort("step")
    assert steps["span_id"][-1] == last
    [row] = steps.filter(pl.col("span_id") == side).select("reward", "is_terminated", "is_truncated").rows()
    assert row == (None, False, False)
    assert steps.filter(pl.col("span_id") != side)["reward"].to_list() == [1.0, 1.0]


@in_each_dialect
def test_the_group_does_not_depend_on_a_side_call(dialect: str) -> None:
    groups: set[str] = set()
    for start_s in (0.15, 0.25):
        world = World()
        agent(world, dialect)
        request = SIDE_REQUESTS["title"]
        call_in(world, dialect, request, text("assistant", "Weather"), trace=TRACE, parent=ROOT, start_s=start_s)
        groups.update(world.convert().episodes["group_id"])
    assert len(groups) == 1


def test_an_agent_that_is_sent_what_another_wrote_is_no_side_call() -> None:
    world = World()
    agent(world, "otel_genai")
    world.span(
        "invoke_agent writer",
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"},
        trace=TRACE,
        span_id="00000000000000a2",
        parent=ROOT,
        start_s=7,
        duration_s=5,
    )
    seen = [text("system", "You write."), text("user", "It rains.")]
    last = call_in(
        world,
        "otel_genai",
        seen,
        text("assistant", "Rain in Paris."),
        trace=TRACE,
        parent="00000000000000a2",
        start_s=8,
        attributes={"gen_ai.agent.name": "writer"},
    )
    assert world.convert().transitions.sort("step")["span_id"][-1] == last


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "tiny"},
        {"openinference.span.kind": "EMBEDDING", "embedding.model_name": "tiny"},
        {"openinference.span.kind": "RERANKER"},
        {"traceloop.span.kind": "task", "traceloop.entity.name": "index"},
    ],
)
def test_work_after_the_answer_that_fails_decides_nothing(attributes: dict[str, str]) -> None:
    world = World()
    agent(world, "otel_genai")
    world.span("index", attributes, trace=TRACE, parent=ROOT, start_s=9, exception=("httpx.ReadTimeout", "timed out"))
    found = world.convert()
    assert found.failures["is_recovered"].to_list() == [True]
    assert found.episodes["error_class"].to_list() == [""]


EVALUATIONS: list[dict[str, Any]] = [
    {"gen_ai.operation.name": "evaluation"},
    {"openinference.span.kind": "EVALUATOR"},
    {"langfuse.observation.type": "evaluator"},
    {"mlflow.spanType": '"EVALUATOR"'},
    {"gen_ai.evaluation.name": "Relevance"},
]
RATING = [text("system", "Rate from 0 to 1."), text("user", "It rains.")]


@pytest.mark.parametrize("evaluation", EVALUATIONS, ids=lambda attributes: next(iter(attributes)))
@in_each_dialect
def test_a_judge_within_the_trace_is_no_step(dialect: str, evaluation: dict[str, Any]) -> None:
    world = World()
    _, last = agent(world, dialect)
    judge = world.span("rate", evaluation, trace=TRACE, parent=ROOT, start_s=9, duration_s=5)
    call_in(world, dialect, RATING, text("assistant", "0.2"), trace=TRACE, parent=judge, start_s=10)
    world.score(0.2, trace_id=TRACE)
    found = world.convert()
    assert found.episodes["step_count"].to_list() == [2]
    assert found.failures["span_id"].to_list() == [last]


@in_each_dialect
@pytest.mark.parametrize("evaluation", EVALUATIONS[:4], ids=lambda attributes: next(iter(attributes)))
def test_a_judge_in_a_trace_of_its_own_scores_the_span_that_it_links_to(
    dialect: str, evaluation: dict[str, Any]
) -> None:
    world = World()
    _, last = agent(world, dialect)
    other = trace_id("judge")
    scores = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "0.2"}
    judge = world.span("rate", {**evaluation, **scores}, trace=other, start_s=9, duration_s=5)
    call_in(world, dialect, RATING, text("assistant", "0.2"), trace=other, parent=judge, start_s=10)
    spans = world.span_frame()
    is_judge = pl.col("SpanId") == judge
    links = [
        pl.when(is_judge).then(pl.lit([value])).otherwise(pl.lit([], dtype=pl.List(pl.String))).alias(f"Links.{name}")
        for name, value in (("TraceId", TRACE), ("SpanId", last))
    ]
    scored, generations = frames.empty(frames.SCORES), frames.empty(frames.GENERATIONS)
    found = convert(spans.with_columns(links), scores=scored, generations=generations)
    assert found.episodes.select("step_count", "reward").rows() == [(2, 0.2)]


def test_an_agent_below_a_guardrail_keeps_its_calls() -> None:
    world = World()
    guard = {"openinference.span.kind": "GUARDRAIL"}
    world.span("guard", guard, trace=TRACE, span_id=ROOT, start_s=0, duration_s=9)
    call_in(world, "openinference", OPENING, ASK, trace=TRACE, parent=ROOT, start_s=1)
    seen = [*OPENING, ASK, answers("c1", "saved")]
    call_in(world, "openinference", seen, text("assistant", "It rains."), trace=TRACE, start_s=3)
    assert world.convert().episodes["step_count"].to_list() == [2]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "evaluation", "gen_ai.evaluation.score.value": "1.0"},
        {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": "1.0"},
        {"agentops.entity.output": '{"type": "reward", "value": 1.0}'},
    ],
)
def test_a_reward_that_is_delivered_twice_changes_no_revision(attributes: dict[str, str]) -> None:
    world = World()
    agent(world, "otel_genai")
    world.span("reward", attributes, trace=TRACE, parent=ROOT, start_s=9)
    before = world.convert().episodes.select("revision", "reward").rows()
    again = {**world.spans[-1], "IngestedAt": world.spans[-1]["IngestedAt"] + 60_000_000}
    world.spans.append(again)
    assert world.convert().episodes.select("revision", "reward").rows() == before
