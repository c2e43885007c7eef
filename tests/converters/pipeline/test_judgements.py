"""What a person says becomes a new revision, wins over scores and rules, and can be taken back."""

from typing import Any

import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from spanloop.administration.forget import forget
from spanloop.converters import Options, frames
from spanloop.converters import convert as convert_frames
from spanloop.converters.enums import FaultOwner
from spanloop.converters.rewards import Attempt, NamedReward
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.judged_values import Verdict
from spanloop.pipeline import run
from spanloop.store import Store
from spanloop.store.judgements import (
    Opinion,
    fetch_judgements,
    find_target,
    judge,
    withdraw,
)

from ..converters.converters_world import OPENING, answers, asks, loop, text, trace_id
from ..converters.pipeline_feed import Feed

TRACE = trace_id("a")
TABLES = ("transitions", "failures")


@pytest.fixture
def failed(store: Store, feed: Feed) -> Feed:
    """An episode whose tool answered with an error, and that a score calls failed."""
    world = feed.world
    call, error = asks("c1", arguments={"limit": 1}), "Error: missing required argument 'query'"
    world.call(OPENING, call, trace=TRACE)
    world.tool("c1", error, trace=TRACE)
    state = (*OPENING, call, answers("c1", error))
    world.call(state, text("assistant", "It rains."), trace=TRACE)
    world.score(0.0, trace_id=TRACE)
    feed.send()
    run(store)
    return feed


def episode(feed: Feed) -> dict[str, object]:
    (row,) = feed.episodes()
    return row


def reasons(feed: Feed) -> list[str]:
    return [str(reason) for reason in feed.current("transitions").sort("step")["untrainable_reason"]]


def test_not_the_policys_fault_masks_the_episode_until_it_is_taken_back(store: Store, failed: Feed) -> None:
    before = episode(failed), [failed.current(table).drop("revision") for table in TABLES]
    assert (before[0]["outcome"], before[0]["fault_owner"]) == ("failure", "policy")
    assert reasons(failed) == ["", ""]
    opinion = Opinion(fault_owner="environment", category="stale index", comment="the index was rebuilt")
    identity = judge(store, find_target(store, TRACE), opinion, judged_by="ann")
    run(store)
    after = episode(failed)
    assert int(str(after["revision"])) > int(str(before[0]["revision"]))
    assert (after["outcome"], after["fault_owner"], after["error_class"]) == ("failure", "environment", "stale index")
    assert (after["marks"], after["judgements"]) == (["bad", "stale index"], [identity])
    assert reasons(failed) == ["environment_fault", "environment_fault"]
    (judged,) = failed.current("failures").filter(failed.current("failures")["error_class"] == "stale index").to_dicts()
    assert (judged["fault_owner"], judged["confidence"]) == ("environment", 1.0)
    assert '"judged_by":"ann"' in judged["evidence"]
    assert '"rule_owner":"policy"' in judged["evidence"]
    kept = failed.sql(f"SELECT fault_owner FROM episodes WHERE revision = {before[0]['revision']}")
    assert kept.is_empty() or kept.item() == "policy"
    withdraw(store, [identity])
    run(store)
    assert fetch_judgements(store).is_empty()
    again = episode(failed)
    assert int(str(again["revision"])) > int(str(after["revision"]))
    assert {name: value for name, value in again.items() if name not in {"revision", "converted_at"}} == {
        name: value for name, value in before[0].items() if name not in {"revision", "converted_at"}
    }
    for table, rows in zip(TABLES, before[1], strict=True):
        assert_frame_equal(failed.current(table).drop("revision"), rows)


def test_a_verdict_and_a_number_win_over_a_score_that_comes_later(store: Store, failed: Feed) -> None:
    judge(store, find_target(store, TRACE), Opinion(verdict=Verdict.GOOD), judged_by="ann")
    run(store)
    assert (episode(failed)["outcome"], episode(failed)["reward"], episode(failed)["marks"]) == (
        "success",
        0.0,
        ["good"],
    )
    assert episode(failed)["fault_owner"] == ""
    judge(store, find_target(store, TRACE), Opinion(verdict=Verdict.GOOD, number=0.75), judged_by="ann")
    failed.world.score(-1.0, name="style", trace_id=TRACE, label="fail")
    failed.send(minutes=60 * 24 * 365)
    run(store)
    assert (episode(failed)["outcome"], episode(failed)["reward"]) == ("success", 0.75)
    assert failed.current("transitions")["reward"].to_list() == [0.75, 0.75]


def test_a_failure_that_is_none_is_gone_and_other_rules_decide(store: Store, failed: Feed) -> None:
    target = find_target(store, TRACE, failure=0)
    assert (target.rule, target.rule_owner) == ("violated_schema", "policy")
    judge(store, target, Opinion(verdict=Verdict.GOOD), judged_by="ann")
    run(store)
    left = failed.current("failures")
    assert target.fingerprint not in left["fingerprint"].to_list()
    assert episode(failed)["error_class"] == "wrong_answer"


def test_a_judged_failure_stays_in_its_group_and_can_be_judged_again(store: Store, failed: Feed) -> None:
    first = find_target(store, TRACE, failure=0)
    judge(store, first, Opinion(fault_owner="user"), judged_by="ann")
    run(store)
    second = find_target(store, TRACE, failure=0)
    assert second.key == first.key
    assert (second.rule_owner, second.rule_class) == (first.rule_owner, first.rule_class)
    judge(store, second, Opinion(fault_owner="harness"), judged_by="bob")
    run(store)
    (judged,) = [row for row in failed.current("failures").to_dicts() if row["fingerprint"] == first.fingerprint]
    assert judged["fault_owner"] == "harness"
    assert fetch_judgements(store)["judged_by"].to_list() == ["bob", "ann"]
    assert episode(failed)["judgements"] == [fetch_judgements(store)["judgement_id"][0]]


def test_a_step_that_only_a_person_finds_bad_becomes_a_failure(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=TRACE)
    feed.send()
    run(store)
    assert feed.current("failures").is_empty()
    opinion = Opinion(verdict=Verdict.BAD, category="rude", number=-1.0, comment="it insults the user")
    judge(store, find_target(store, TRACE, step=1), opinion, judged_by="ann")
    run(store)
    (failure,) = feed.current("failures").to_dicts()
    assert (failure["step"], failure["rule"], failure["fault_owner"], failure["error_class"]) == (
        1,
        "person",
        "policy",
        "rude",
    )
    assert failure["message"] == "it insults the user"
    steps = feed.current("transitions").sort("step")
    assert steps["reward"].to_list() == [-1.0, -1.0, -1.0]
    assert steps["error_class"].to_list() == ["", "rude", ""]


def test_bad_where_the_rules_see_nothing_is_a_failure_of_the_last_step(store: Store, feed: Feed) -> None:
    loop(feed.world, "a", trace=TRACE)
    feed.world.score(1.0, trace_id=TRACE)
    feed.send()
    run(store)
    judge(store, find_target(store, TRACE), Opinion(verdict=Verdict.BAD, comment="made up"), judged_by="ann")
    run(store)
    row = episode(feed)
    assert (row["outcome"], row["reward"], row["error_class"]) == ("failure", 1.0, "judged_bad")
    (failure,) = feed.current("failures").to_dicts()
    assert (failure["step"], failure["rule"], failure["message"]) == (2, "person", "made up")
    with pytest.raises(ConfigurationError, match="is a person's own"):
        find_target(store, TRACE, failure=0)


def test_a_reward_function_sees_failures_as_people_judge_them(store: Store, failed: Feed) -> None:
    def penalty(attempt: Attempt) -> float:
        return -float(sum(failure.finding.owner is FaultOwner.POLICY for failure in attempt.failures))

    options = Options(reward_functions=(NamedReward("penalty", penalty),))
    run(store, options=options, full=True)
    assert episode(failed)["reward_breakdown"] == {"reward": 0.0, "penalty": -1.0}
    judge(store, find_target(store, TRACE, failure=0), Opinion(fault_owner="harness"), judged_by="ann")
    run(store, options=options)
    assert episode(failed)["reward_breakdown"] == {"reward": 0.0, "penalty": 0.0}


@pytest.mark.parametrize("places", [(0, 1, 2), (2, 1, 0, 0, 1, 2)])
def test_order_and_repetition_change_nothing(store: Store, failed: Feed, places: tuple[int, ...]) -> None:
    opinions = [Opinion(verdict=Verdict.GOOD), Opinion(fault_owner="tool"), Opinion(fault_owner="harness")]
    for number, opinion in enumerate(opinions):
        judge(store, find_target(store, TRACE), opinion, judged_by="ann", judged_ns=number + 1)
    rows = store.query("pipeline_judgements", trace_ids=[TRACE])
    converted = convert_frames(
        failed.world.span_frame(),
        scores=failed.world.score_frame(),
        generations=frames.empty(frames.GENERATIONS),
        judgements=rows[list(places)],
    )
    assert converted.episodes["fault_owner"].to_list() == ["harness"]
    assert converted.rejected.filter(converted.rejected["reason"].str.starts_with("judgement")).is_empty()


def test_a_judgement_counts_when_a_later_span_stands_for_the_judged_one(store: Store, feed: Feed) -> None:
    outer = feed.world.call(OPENING, text("assistant", "Sunny."), trace=TRACE, response_id="r1", start_s=1)
    feed.send()
    run(store)
    judge(store, find_target(store, TRACE), Opinion(verdict=Verdict.GOOD), judged_by="ann")
    inner: dict[str, Any] = {"response_id": "r1", "parent": outer, "start_s": 1.1, "duration_s": 0.3}
    feed.world.call(OPENING, text("assistant", "Sunny."), trace=TRACE, **inner)
    feed.send()
    run(store)
    assert feed.current("transitions")["span_id"].to_list() != [outer]
    assert episode(feed)["outcome"] == "success"


def test_a_judgement_without_its_span_is_rejected_by_name(store: Store, failed: Feed) -> None:
    judge(store, find_target(store, TRACE)._replace(span_id="f" * 16), Opinion(verdict=Verdict.GOOD), judged_by="ann")
    assert run(store).rejected["judgement_without_episode"] == 1
    assert episode(failed)["outcome"] == "failure"


def test_the_judgements_of_a_forgotten_trace_go(store: Store, failed: Feed) -> None:
    judge(store, find_target(store, TRACE), Opinion(comment="secret"), judged_by="ann")
    assert failed.sql("SELECT count() AS n FROM judgements").item() == 1
    forget(store, trace_id=TRACE)
    assert failed.sql("SELECT count() AS n FROM judgements").item() == 0


def test_what_says_nothing_and_what_is_not_there_is_refused(store: Store, failed: Feed) -> None:
    with pytest.raises(ValidationError, match="says nothing"):
        Opinion()
    with pytest.raises(ValidationError, match="no fault owner"):
        Opinion(verdict=Verdict.GOOD, fault_owner="tool")
    with pytest.raises(ValidationError, match="expected one of policy"):
        Opinion(fault_owner="nobody")
    with pytest.raises(ConfigurationError, match="no episode 'x'"):
        find_target(store, "x")
    with pytest.raises(ConfigurationError, match="has no failure 9"):
        find_target(store, TRACE, failure=9)
    with pytest.raises(ConfigurationError, match="no judgement"):
        withdraw(store, ["nope"])
    assert episode(failed)["judgements"] == []
