"""Schedules that begin rounds of a loop: one at a time, continued after a kill, with one recorded end each."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import SchedulerSettings
from spanloop.training.jobs.processes.scheduler_loop import Scheduler
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_settings import Budget
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.training.loop.rounds import LoopRounds
from spanloop.training.run.job_api import JobApi, JobSpec, LoopFile, Schedule, ScheduleSettings
from spanloop.training.run.tick_decision import decide_tick
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock, wait_until

LOOP = """
import pathlib, sys, time
from spanloop.training.loop.rounds import LoopRounds, RoundOutcome
file = pathlib.Path(sys.argv[1])
assert sys.argv[2] == "--data-dir"
rounds = LoopRounds(sys.argv[3])
opened = next((each for each in rounds.list("tiny") if each.outcome is None), None) or rounds.begin("tiny", "tiny@v1")
file.with_name("runs").open("a").write(".")
while file.read_text() == "wait":
    time.sleep(0.02)
if file.read_text() == "fail":
    sys.exit("error: the agent is broken")
rounds.end(opened, RoundOutcome.KEPT, "it is worse")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app" / "app.toml"
    path.parent.mkdir()
    path.write_text("go on")
    return path


@pytest.fixture
def schedule(api: JobApi, file: Path) -> Schedule:
    settings = ScheduleSettings(every_minutes=60, loop=LoopFile(path=str(file), model="tiny"))
    return api.schedule(JobSpec.of(kind="sft", base="tiny", steps=2), settings=settings)


@pytest.fixture
def scheduler(data_dir: DataDir, clock: FakeClock) -> Iterator[Scheduler]:
    running = make_scheduler(data_dir, clock)
    yield running
    running.close()


def make_scheduler(data_dir: DataDir, clock: FakeClock) -> Scheduler:
    return Scheduler(
        data_dir,
        parse_spec,
        tick_command=(sys.executable, "-c", ""),  # `tick` decides in this process
        loop_command=(sys.executable, "-c", LOOP),
        settings=SchedulerSettings(leadership_s=1e6),
        clock=clock,
    )


def tick(data_dir: DataDir, clock: FakeClock, scheduler: Scheduler) -> None:
    """Let the scheduler look once, and decide about due ticks."""
    scheduler.tick()

    def decide(schedule: Schedule) -> Decision:
        return decide_tick(data_dir, schedule, now=clock.now).decision

    run_due_ticks(scheduler.database, decide, parse_spec, recurring=True, clock=clock)


def history(api: JobApi, schedule: Schedule) -> list[tuple[str, str | None, str]]:
    """Return what the ticks did, the oldest first."""
    return [(tick.outcome.value, tick.job_id, tick.reason) for tick in reversed(api.ticks(schedule.id))]


def test_a_tick_begins_a_round_and_records_its_end(  # noqa: PLR0917 - fixtures
    data_dir: DataDir, api: JobApi, clock: FakeClock, scheduler: Scheduler, schedule: Schedule, file: Path
) -> None:
    wait_until(lambda: len(api.ticks(schedule.id)) == 2, each=lambda: tick(data_dir, clock, scheduler))
    assert history(api, schedule) == [
        ("submitted", "round-1", "a round of its loop"),
        ("ended", "round-1", "kept: it is worse"),
    ]
    (only,) = LoopRounds(data_dir).list()
    assert (only.number, only.outcome, api.list()) == (1, "kept", ())
    for _ in range(3):
        tick(data_dir, clock, scheduler)
    assert file.with_name("runs").read_text() == "."
    assert f"round-1 of {file}" in (data_dir.jobs / schedule.id / "log.txt").read_text()


def test_a_round_that_runs_is_not_begun_again_and_pausing_its_schedule_stops_it(
    data_dir: DataDir, api: JobApi, clock: FakeClock, schedule: Schedule, file: Path
) -> None:
    file.write_text("wait")
    first = make_scheduler(data_dir, clock)
    wait_until(lambda: file.with_name("runs").exists(), each=lambda: tick(data_dir, clock, first))
    first.close()  # as when it is killed: the round has no recorded end
    clock.forward(hours=2)
    second = make_scheduler(data_dir, clock)
    wait_until(lambda: len(api.ticks(schedule.id)) == 2, each=lambda: tick(data_dir, clock, second))
    wait_until(lambda: file.with_name("runs").read_text() == "..", each=lambda: tick(data_dir, clock, second))
    assert history(api, schedule)[1] == ("skipped", None, "its round-1 has not ended, and it has one round at a time")
    api.pause(schedule.id)
    second.tick()
    file.write_text("go on")
    second.tick()
    assert [each.outcome for each in LoopRounds(data_dir).list()] == [None]
    api.resume(schedule.id)
    wait_until(lambda: len(api.ticks(schedule.id)) == 3, each=lambda: tick(data_dir, clock, second))
    second.close()
    assert history(api, schedule)[2] == ("ended", "round-1", "kept: it is worse")
    assert [each.outcome for each in LoopRounds(data_dir).list()] == ["kept"]


def test_a_round_that_cannot_go_on_says_why_and_the_next_tick_continues_it(  # noqa: PLR0917 - fixtures
    data_dir: DataDir, api: JobApi, clock: FakeClock, scheduler: Scheduler, schedule: Schedule, file: Path
) -> None:
    file.write_text("fail")
    wait_until(lambda: len(api.ticks(schedule.id)) == 2, each=lambda: tick(data_dir, clock, scheduler))
    assert history(api, schedule)[1] == (
        "ended",
        "round-1",
        "interrupted: spanloop loop ended with status 1: error: the agent is broken",
    )
    scheduler.close()
    file.write_text("go on")
    clock.forward(hours=1)
    later = make_scheduler(data_dir, clock)
    wait_until(lambda: len(api.ticks(schedule.id)) == 4, each=lambda: tick(data_dir, clock, later))
    later.close()
    assert [each[:2] for each in history(api, schedule)[2:]] == [("submitted", "round-1"), ("ended", "round-1")]
    assert [each.outcome for each in LoopRounds(data_dir).list()] == ["kept"]


def test_an_end_that_a_killed_scheduler_did_not_record_is_recorded_and_no_round_follows(
    data_dir: DataDir, api: JobApi, clock: FakeClock, schedule: Schedule, file: Path
) -> None:
    first = make_scheduler(data_dir, clock)
    wait_until(lambda: file.with_name("runs").exists(), each=lambda: tick(data_dir, clock, first))
    wait_until(lambda: any(each.outcome for each in LoopRounds(data_dir).list()))
    first.close()
    second = make_scheduler(data_dir, clock)
    second.tick()
    second.close()
    assert history(api, schedule)[1:] == [("ended", "round-1", "kept: it is worse")]
    assert file.with_name("runs").read_text() == "."


def test_a_file_that_is_gone_skips_the_tick(  # noqa: PLR0917 - fixtures
    data_dir: DataDir, api: JobApi, clock: FakeClock, scheduler: Scheduler, schedule: Schedule, file: Path
) -> None:
    file.unlink()
    wait_until(lambda: bool(api.ticks(schedule.id)), each=lambda: tick(data_dir, clock, scheduler))
    assert history(api, schedule) == [("skipped", None, f"there is no file {file}")]
    assert api.ticks(schedule.id)[0].outcome is TickOutcome.SKIPPED


def test_a_budget_of_jobs_is_refused_because_the_file_has_its_own(api: JobApi, spec: JobSpec) -> None:
    loop = LoopFile(path="/app.toml", model="tiny")
    settings = ScheduleSettings(every_minutes=60, loop=loop, budget=Budget.parse("3 jobs/week"))
    with pytest.raises(ConfigurationError, match=r"has the \[budget\] of its file"):
        api.schedule(spec, settings=settings)
