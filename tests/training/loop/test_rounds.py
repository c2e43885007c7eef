"""Stored rounds: one end each, finished steps stay, and only the leader writes."""

from datetime import UTC, datetime

import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import Leadership, LeadershipLostError
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.loop.estimates import Estimates
from spanloop.training.loop.rounds import LoopRound, LoopRounds, RoundOutcome, StepName, StepRecord


def test_a_round_is_begun_recorded_and_ended_once(data_dir: DataDir) -> None:
    rounds = LoopRounds(data_dir)
    first = rounds.begin("m", "m@v1")
    assert (first.number, first.champion, first.outcome, first.steps) == (1, "m@v1", None, ())
    with pytest.raises(JobError, match="Round 1 of m is open"):
        rounds.begin("m", "m@v1")
    assert rounds.begin("other", "other@v1").number == 1
    interrupted = rounds.record(first, StepRecord(StepName.COLLECT, 3.5, 10))
    assert not interrupted.step(StepName.COLLECT).is_finished
    done = rounds.record(first, StepRecord(StepName.COLLECT, 5.0, 20, "", {"attempts": 4}), candidate="m@v2")
    assert (done.step(StepName.COLLECT).result, done.candidate, done.seconds, done.tokens) == (
        {"attempts": 4},
        "m@v2",
        5.0,
        20,
    )
    with pytest.raises(JobError, match="collect of round 1 of m is finished already"):
        rounds.record(first, StepRecord(StepName.COLLECT))
    ended = rounds.end(first, RoundOutcome.PROMOTED, "better")
    assert (ended.outcome, ended.reason) == (RoundOutcome.PROMOTED, "better")
    assert ended.ended_at is not None
    with pytest.raises(JobError, match="Round 1 of m has ended: promoted"):
        rounds.end(first, RoundOutcome.KEPT, "")
    with pytest.raises(JobError, match="Round 1 of m has ended: promoted"):
        rounds.record(first, StepRecord(StepName.TRAIN))
    assert rounds.begin("m", "m@v2").number == 2
    assert [each.number for each in rounds.list("m")] == [1, 2]


def test_a_process_that_does_not_lead_writes_nothing(data_dir: DataDir) -> None:
    database = ControlDatabase(ControlPaths.of(data_dir))
    first, second = (Leadership(database, "loop", owner=owner, lease_s=0.01) for owner in ("a", "b"))
    assert first.acquire()
    rounds = LoopRounds(data_dir, check=first.check_leads)
    begun = rounds.begin("m", "m@v1")
    second.wait()
    with pytest.raises(LeadershipLostError):
        rounds.end(begun, RoundOutcome.KEPT, "")
    assert LoopRounds(data_dir, check=second.check_leads).end(begun, RoundOutcome.PROMOTED, "").outcome == "promoted"


def round_with(number: int, *steps: StepRecord) -> LoopRound:
    return LoopRound("m", number, "m@v1", "", steps, None, "", datetime(2026, 1, 1, tzinfo=UTC), None)


def step(name: StepName, seconds: float, tokens: int = 0) -> StepRecord:
    return StepRecord(name, seconds, tokens, "", {})


def test_time_left_is_that_of_earlier_rounds() -> None:
    first = round_with(1, step(StepName.MEASURE, 60, 100))
    before = Estimates([first], 4.0, {})
    assert (before.seconds(StepName.TEST), before.seconds(StepName.COLLECT), before.seconds(StepName.TRAIN)) == (
        60,
        240,
        None,
    )
    assert (before.tokens(StepName.COLLECT), before.tokens(StepName.TRAIN)) == (400, 0)
    assert before.rest_s(StepName.MEASURE, 0) is None
    assumed = {StepName.MEASURE: 30.0, StepName.TRAIN: 50.0}  # of a machine that is twice as fast
    assert Estimates([first], 4.0, assumed).rest_s(StepName.MEASURE, 0) == 240 + 100 + 60 + 10
    whole = [step(StepName.COLLECT, 200), step(StepName.TRAIN, 90), step(StepName.TEST, 50), step(StepName.DECIDE, 5)]
    after = Estimates([round_with(1, step(StepName.MEASURE, 60), *whole)], 4.0, {})
    assert after.rest_s(StepName.DECIDE, 1) == 200 + 90 + 50 + 5
    assert after.rest_s(StepName.TRAIN, 0) == 55


def test_an_interrupted_step_is_no_measurement() -> None:
    estimates = Estimates([round_with(1, StepRecord(StepName.TRAIN, 500.0))], 1.0, {})
    assert estimates.seconds(StepName.TRAIN) is None
