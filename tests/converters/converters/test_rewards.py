import math

import polars as pl
import pytest

from spanloop.converters import Options

from .converters_world import OPENING, World, answers, asks, loop, text, trace_id

TRACE = trace_id("t")


def episode(world: World, **common: object) -> list[str]:
    return loop(world, "x", trace=TRACE, **common)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "ids",
    [
        {"trace_id": TRACE},
        {"session_id": "s1"},
        {"episode_key": "e1"},
        {"trace_id": TRACE, "span_id": "root"},
        {"trace_id": "elsewhere", "episode_key": "e1"},
    ],
)
def test_a_score_finds_its_episode(ids: dict[str, str]) -> None:
    world = World()
    world.span("task", {"spanloop.episode.id": "e1", "session.id": "s1"}, trace=TRACE, span_id="root")
    episode(world)
    world.score(0.75, **ids)
    converted = world.convert()
    assert converted.episodes["reward"].to_list() == [0.75]
    assert converted.transitions["reward"].to_list() == [0.75] * 3
    assert converted.episodes["outcome"].to_list() == ["success"]
    assert converted.episodes["reward_breakdown"].to_list() == [{"reward": 0.75}]


def test_a_score_for_a_response_is_the_reward_of_that_step() -> None:
    world = World()
    episode(world)
    world.score(1.0, trace_id=TRACE)
    world.score(0.25, response_id="chatcmpl-2")
    converted = world.convert()
    assert converted.transitions.sort("step")["reward"].to_list() == [1.0, 0.25, 1.0]
    assert converted.episodes["reward"].to_list() == [1.0]


def test_steps_alone_are_averaged() -> None:
    world = World()
    spans = episode(world)
    world.score(1.0, trace_id=TRACE, span_id=spans[0])
    world.score(0.0, trace_id=TRACE, span_id=spans[1])
    assert world.convert().episodes["reward"].to_list() == [0.5]


def test_the_score_named_reward_wins_over_the_others() -> None:
    world = World()
    episode(world)
    world.score(0.2, name="style", trace_id=TRACE)
    world.score(0.9, name="reward", trace_id=TRACE)
    row = world.convert().episodes.row(0, named=True)
    assert row["reward"] == 0.9
    assert row["reward_breakdown"] == {"reward": 0.9, "style": 0.2}


def test_a_mark_is_no_reward_and_the_newest_of_a_label_counts() -> None:
    world = World()
    episode(world)
    world.score(0.5, trace_id=TRACE)
    world.score(1.0, name="spanloop.mark", label="good", trace_id=TRACE)
    world.score(1.0, name="spanloop.mark", label="checked", response_id="chatcmpl-2")
    world.score(1.0, name="spanloop.mark", label="odd", trace_id=TRACE, at_s=50)
    world.score(0.0, name="spanloop.mark", label="odd", trace_id=TRACE, at_s=60)
    world.score(1.0, name="spanloop.mark", label="deleted", trace_id=TRACE, is_deleted=1)
    world.score(1.0, name="spanloop.mark", trace_id=TRACE)
    converted = world.convert()
    row = converted.episodes.row(0, named=True)
    assert (row["marks"], row["reward"]) == (["checked", "good"], 0.5)
    assert row["reward_breakdown"] == {"reward": 0.5}
    assert converted.transitions["reward"].to_list() == [0.5] * 3
    assert converted.rejected["reason"].to_list() == ["mark_without_label"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tag.tags", '["beta", "eu", "seq:step:1"]'),
        ("langfuse.trace.tags", '["eu", " beta "]'),
        ("langsmith.span.tags", "beta, eu,graph:step:2,"),
        ("logfire.tags", '["LLM", "beta", "eu"]'),
    ],
)
def test_tags_of_a_span_mark_its_episode_and_a_mark_of_the_app_wins(key: str, value: str) -> None:
    world = World()
    loop(world, "x", trace=TRACE, attributes={key: value})
    loop(world, "y", trace="b" * 32, opening=[OPENING[0], text("user", "another")])
    world.score(0.0, name="spanloop.mark", label="beta", trace_id=TRACE)
    converted = world.convert()
    marks = dict(converted.transitions.select("trace_id", "episode_id").unique().iter_rows())
    by_episode = dict(converted.episodes.select("episode_id", "marks").iter_rows())
    assert by_episode == {marks[TRACE]: ["eu"], marks["b" * 32]: []}
    assert converted.episodes["reward"].to_list() == [None, None]


def test_a_tag_on_a_span_of_no_episode_marks_those_of_its_trace() -> None:
    world = World()
    episode(world)
    world.span("http", {"langfuse.trace.tags": '["beta"]'}, trace=TRACE)
    world.span("http", {"langfuse.trace.tags": '["alone"]'}, trace="c" * 32)
    converted = world.convert()
    assert converted.episodes["marks"].to_list() == [["beta"]]
    assert "score_without_episode" not in converted.rejected["reason"].to_list()


def test_without_one_named_reward_the_scores_are_averaged() -> None:
    world = World()
    episode(world)
    world.score(0.2, name="style", trace_id=TRACE)
    world.score(0.6, name="truth", trace_id=TRACE)
    assert world.convert().episodes["reward"].to_list() == [pytest.approx(0.4)]


def test_of_two_rewards_the_newest_counts_for_all_steps() -> None:
    world = World()
    episode(world)
    world.score(0.0, trace_id=TRACE, at_s=50)
    world.score(1.0, trace_id=TRACE, at_s=60)
    assert set(world.convert().transitions["reward"].to_list()) == {1.0}


def test_a_corrected_score_replaces_itself_and_makes_a_new_revision() -> None:
    world = World()
    episode(world)
    world.score(0.0, trace_id=TRACE, score_id="s", at_s=50)
    before = world.convert().episodes.row(0, named=True)
    world.score(1.0, trace_id=TRACE, score_id="s", at_s=90)
    after = world.convert().episodes.row(0, named=True)
    assert (before["reward"], after["reward"]) == (0.0, 1.0)
    assert after["revision"] > before["revision"]


def test_a_withdrawn_score_counts_for_the_revision_only() -> None:
    world = World()
    episode(world)
    world.score(1.0, trace_id=TRACE, at_s=90, is_deleted=1)
    row = world.convert().episodes.row(0, named=True)
    assert (row["reward"], row["outcome"]) == (None, "unknown")
    assert row["revision"] == int(world.score_frame()["ingested_at"].cast(pl.Int64).item())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_rejected_with_its_place(value: float) -> None:
    world = World()
    episode(world)
    world.score(value, trace_id=TRACE, span_id="x", score_id="bad")
    converted = world.convert()
    assert converted.rejected.select("trace_id", "span_id", "reason").rows() == [(TRACE, "x", "score_not_finite")]
    assert "bad" in converted.rejected.item(0, "detail")
    assert converted.episodes["reward"].to_list() == [None]


@pytest.mark.parametrize("value", [1e308, 3e38, -1.001e12])
def test_a_reward_beyond_the_range_of_scores_is_rejected_with_its_episode(value: float) -> None:
    world = World()
    episode(world)
    world.score(value, trace_id=TRACE, score_id="old")
    world.score(value, trace_id=TRACE, score_id="deleted", is_deleted=1)
    world.score(1e12, name="most", trace_id=TRACE)
    converted = world.convert()
    ((reason, detail),) = converted.rejected.select("reason", "detail").rows()
    assert (reason, detail) == ("score_out_of_range", f"score old 'reward' = {value!r} for episode {TRACE}")
    assert converted.episodes["reward"].to_list() == [1e12]


def test_a_step_score_beyond_the_range_is_rejected() -> None:
    world = World()
    episode(world)
    world.score(1e308, response_id="chatcmpl-1")
    converted = world.convert()
    assert converted.rejected["reason"].to_list() == ["score_out_of_range"]
    assert TRACE in converted.rejected.item(0, "detail")
    assert converted.transitions["reward"].to_list() == [None] * converted.transitions.height


def test_a_reward_for_an_unknown_trace_is_rejected() -> None:
    world = World()
    episode(world)
    world.score(1.0, trace_id="f" * 32)
    converted = world.convert()
    assert converted.rejected["reason"].to_list() == ["score_without_episode"]
    assert converted.rejected["trace_id"].to_list() == ["f" * 32]


def test_a_session_with_two_episodes_leaves_its_score_ambiguous() -> None:
    world = World()
    for name in "ab":
        opening = [OPENING[0], text("user", name)]
        loop(world, name, opening=opening, attributes={"session.id": "s"})
    world.score(1.0, session_id="s")
    assert world.convert().rejected["reason"].to_list() == ["score_ambiguous"]


def test_one_bad_score_in_a_thousand_costs_one() -> None:
    world = World()
    for number in range(1000):
        trace = f"{number:032x}"
        world.call([text("user", f"{number}")], text("assistant", "x"), trace=trace)
        world.score(math.nan if number == 500 else 1.0, trace_id=trace)
    converted = world.convert()
    assert converted.rejected.height == 1
    assert converted.episodes["reward"].null_count() == 1


@pytest.mark.parametrize(
    ("value", "label", "outcome"),
    [
        (1.0, "", "success"),
        (0.5, "", "success"),
        (0.49, "", "failure"),
        (0.0, "pass", "success"),
        (1.0, "incorrect", "failure"),
    ],
)
def test_the_outcome_follows_the_label_then_the_value(value: float, label: str, outcome: str) -> None:
    world = World()
    episode(world)
    world.score(value, trace_id=TRACE, label=label)
    assert world.convert().episodes["outcome"].to_list() == [outcome]


def test_the_threshold_of_success_is_a_choice() -> None:
    world = World()
    episode(world)
    world.score(0.0, trace_id=TRACE)
    assert world.convert(Options(success_threshold=0.0)).episodes["outcome"].to_list() == ["success"]


def test_a_wrong_answer_is_the_policys_failure() -> None:
    world = World()
    episode(world)
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    row = converted.failures.row(0, named=True)
    assert (row["error_class"], row["fault_owner"], row["step"], row["is_recovered"]) == (
        "wrong_answer",
        "policy",
        2,
        False,
    )
    assert converted.episodes.select("error_class", "fault_owner").row(0) == ("wrong_answer", "policy")
    assert converted.transitions["is_trainable"].all()


def test_an_episode_that_the_environment_spoiled_is_not_a_wrong_answer() -> None:
    world = World()
    world.call(OPENING, asks("c1"), trace=TRACE)
    history = [*OPENING, asks("c1"), answers("c1", "Error: HTTP 503 service unavailable")]
    world.call(history, text("assistant", "I could not look it up."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    converted = world.convert()
    assert converted.failures["error_class"].to_list() == ["server_error"]
    assert converted.episodes["fault_owner"].to_list() == ["environment"]
    assert set(converted.transitions["untrainable_reason"].to_list()) == {"environment_fault"}
