"""Offers of attempts: leases, fencing, what a run takes back, and how many are made at the same time."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.orm import Session

from spanloop.evaluation.runner.attempt import TaskAttempt
from spanloop.evaluation.tasks import Task
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.training.attempt_pool.offers import Finished, Offers, OfferState, Refusal
from spanloop.training.jobs.database.control_database import ControlDatabase

ELSEWHERE, THERE = "another-machine:1:1", "another-machine:2:2"
LEASE_S = 30.0


class Time:
    """The database's clock."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self, _: Session) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def offers(database: ControlDatabase, time: Time) -> Offers:
    offers = Offers(database, lease_time=time)
    offers.open_run("r", "{}", parallel=2)
    return offers


def attempts(count: int) -> list[TaskAttempt]:
    task = Task("t", {"question": "ä", "options": [1, None]}, "digest")
    return [TaskAttempt(1, task, number, f"e{number}", ("before",), 7) for number in range(1, count + 1)]


def test_an_attempt_is_leased_once_as_it_was_offered(offers: Offers) -> None:
    first, second = attempts(2)
    offers.offer("r", [first])
    offers.offer("r", [first, second])  # a call whose outcome was not known
    leased = [offers.lease("r", owner, LEASE_S) for owner in (ELSEWHERE, THERE, THERE)]
    assert [None if each is None else each.attempt for each in leased] == [first, second, None]


def test_no_more_attempts_are_made_at_once_than_the_run_allows(offers: Offers) -> None:
    offers.offer("r", attempts(3))
    first = offers.lease("r", ELSEWHERE, LEASE_S)
    assert offers.waiting_runs("runner") == ["r"]
    assert first is not None
    assert offers.lease("r", THERE, LEASE_S) is not None
    assert offers.lease("r", THERE, LEASE_S) is None
    assert offers.waiting_runs("runner") == []
    assert offers.finish(first, OfferState.ENDED, "result")
    assert offers.lease("r", THERE, LEASE_S) is not None


def test_a_lease_that_ended_is_taken_back_and_its_runner_changes_nothing(offers: Offers, time: Time) -> None:
    offers.offer("r", attempts(2))
    lost, kept = offers.lease("r", ELSEWHERE, LEASE_S), offers.lease("r", THERE, LEASE_S)
    assert lost is not None
    assert kept is not None
    time.forward(20)
    assert offers.renew("r", THERE, LEASE_S) == {"e2"}
    assert offers.take_back("r") == []
    time.forward(11)
    assert offers.take_back("r") == ["e1"]
    assert not offers.finish(lost, OfferState.ENDED, "late")
    assert offers.renew("r", ELSEWHERE, LEASE_S) == frozenset()
    assert offers.finish(kept, OfferState.ENDED, "in time")
    assert not offers.finish(kept, OfferState.INTERRUPTED)
    assert offers.finished("r") == [Finished("e2", OfferState.ENDED, "in time")]
    offers.remove(["e2"])
    assert offers.episode_ids("r") == frozenset()


def test_a_process_of_this_machine_that_has_ended_loses_its_attempts_at_once(offers: Offers) -> None:
    ended = ProcessIdentity.current()._replace(start_ticks=1)
    offers.offer("r", attempts(1))
    assert offers.lease("r", str(ended), LEASE_S) is not None
    assert offers.take_back("r") == ["e1"]


def test_a_run_that_closes_says_what_was_begun_and_leaves_nothing(offers: Offers) -> None:
    offers.offer("r", attempts(2))
    leased = offers.lease("r", ELSEWHERE, LEASE_S)
    assert leased is not None
    assert offers.close_run("r") == {"e1"}
    assert not offers.finish(leased, OfferState.ENDED, "late")
    offers.refuse("r", "runner", Refusal("host", "late"), retry_s=None)
    assert (offers.request_of("r"), offers.refusals("r"), offers.waiting_runs("runner")) == (None, [], [])


def test_a_runner_that_refused_takes_nothing_until_it_may_try_again(offers: Offers, time: Time) -> None:
    offers.offer("r", attempts(1))
    offers.refuse("r", "lacks it", Refusal("host", "no agent"), retry_s=None)
    offers.refuse("r", "waits", Refusal("other", "no gateway"), retry_s=60)
    assert offers.refusals("r") == [
        Refusal("host", "no agent"),
        Refusal("other", "no gateway", is_final=False),
    ]
    assert [offers.waiting_runs(each) for each in ("lacks it", "waits", "new")] == [[], [], ["r"]]
    time.forward(61)
    assert [offers.waiting_runs(each) for each in ("lacks it", "waits")] == [[], ["r"]]
    offers.open_run("r", "{}", parallel=2)
    assert offers.waiting_runs("lacks it") == ["r"]
