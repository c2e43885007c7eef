"""Test that of several schedulers one decides, and that what a former leader writes is refused."""

import pytest

from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import LeaderRow
from spanloop.training.jobs.leadership import LEADERSHIP_S, SCHEDULER, Leadership, LeadershipLostError
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.training.run.job_api import JobApi, JobSpec, Schedule, ScheduleSettings
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock

HERE = ProcessIdentity.current()
ELSEWHERE = HERE._replace(machine="another")
ENDED = HERE._replace(start_ticks=1)
SUBMITTED = Decision(TickOutcome.SUBMITTED, "new data")


def claim(database: ControlDatabase, clock: FakeClock, owner: ProcessIdentity = HERE) -> Leadership:
    return Leadership(
        database,
        SCHEDULER,
        owner=str(owner),
        lease_time=lambda _: clock(),
        elapsed_s=lambda: clock().timestamp(),
    )


def check(database: ControlDatabase, leadership: Leadership) -> None:
    with database.write() as session:
        leadership.check_leads(session)


def test_one_leads_and_another_follows_when_it_was_not_heard_of_for_its_lease(
    database: ControlDatabase, clock: FakeClock
) -> None:
    first, second = claim(database, clock, ELSEWHERE), claim(database, clock)
    assert [first.hold(), second.hold(), first.hold()] == [True, False, True]
    for _ in range(5):
        clock.forward(seconds=LEADERSHIP_S * 0.6)
        assert [second.hold(), first.hold()] == [False, True]
    check(database, first)
    with pytest.raises(LeadershipLostError, match="with token None is lost"):
        check(database, second)
    clock.forward(seconds=LEADERSHIP_S)
    assert not first.is_held, "it knows by its own clock that another one may lead"
    assert second.hold()
    check(database, second)
    with pytest.raises(LeadershipLostError, match="with token 1 is lost: the current token is 2"):
        check(database, first)
    assert not first.hold()
    assert (first.token, second.token) == (None, 2)


def test_a_leader_that_ends_in_order_is_followed_at_once(database: ControlDatabase, clock: FakeClock) -> None:
    first, second = claim(database, clock, ELSEWHERE), claim(database, clock)
    assert first.hold()
    second.release()
    assert not second.hold()
    first.release()
    with pytest.raises(LeadershipLostError):
        check(database, first)
    assert second.hold()
    first.release()
    check(database, second)


def test_a_leader_on_this_machine_that_died_is_followed_at_once_and_one_elsewhere_is_not(
    database: ControlDatabase, clock: FakeClock
) -> None:
    assert claim(database, clock, ENDED).hold()
    assert claim(database, clock, ENDED._replace(machine="another")).hold()
    assert not claim(database, clock).hold(), "its pid means nothing here"


def test_a_leader_whose_lease_expired_goes_on_when_nobody_followed(database: ControlDatabase, clock: FakeClock) -> None:
    leadership = claim(database, clock)
    assert leadership.hold()
    clock.forward(hours=1)
    assert leadership.hold()
    assert leadership.token == 1
    with database.read() as session:
        assert session.get_one(LeaderRow, SCHEDULER).until > clock.now


@pytest.mark.parametrize("is_recurring", [True, False])
def test_a_tick_that_a_former_leader_decides_late_submits_nothing(
    *, api: JobApi, spec: JobSpec, database: ControlDatabase, clock: FakeClock, is_recurring: bool
) -> None:
    """It hangs while it decides; the next leader decides meanwhile."""
    former, latter = claim(database, clock, ELSEWHERE), claim(database, clock)
    if is_recurring:
        api.schedule(spec, settings=ScheduleSettings(every_minutes=5))
    else:
        api.schedule(spec, at=clock.now)

    def submit(_: Schedule) -> Decision:
        return SUBMITTED

    def hang(_: Schedule) -> Decision:
        clock.forward(seconds=LEADERSHIP_S + 1)
        assert latter.hold()
        assert run_due_ticks(
            database, submit, parse_spec, recurring=is_recurring, check=latter.check_leads, clock=clock
        )
        return SUBMITTED

    assert former.hold()
    with pytest.raises(LeadershipLostError):
        run_due_ticks(database, hang, parse_spec, recurring=is_recurring, check=former.check_leads, clock=clock)
    assert len(api.list()) == 1
