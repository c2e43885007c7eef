"""Test the process of the ticks: one at a time, started again after a pause when it failed."""

import sys

import psutil
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules import tick_process
from spanloop.training.jobs.schedules.tick_process import TickProcess
from spanloop.training.run.job_api import JobApi, JobSpec, ScheduleSettings
from spanloop.training.run.scheduler import Scheduler
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock, wait_until

COUNT = """
import pathlib, sys
path = pathlib.Path(sys.argv[-1]) / 'started'
path.write_text(path.read_text() + '.' if path.exists() else '.')
"""


def started(data_dir: DataDir) -> int:
    path = data_dir.path / "started"
    return len(path.read_text()) if path.exists() else 0


def command(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", COUNT + code)


def test_it_starts_when_a_tick_is_due_and_one_at_a_time(data_dir: DataDir) -> None:
    process = TickProcess(ControlPaths.of(data_dir), command("import time; time.sleep(600)"))
    others = set(psutil.Process().children())
    process.look(is_due=False)
    for _ in range(3):
        process.look(is_due=True)
    wait_until(lambda: started(data_dir) == 1)
    (child,) = set(psutil.Process().children()) - others
    process.close()
    assert not child.is_running()
    assert started(data_dir) == 1


def test_after_a_failure_it_is_started_again_after_a_pause(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tick_process, "FIRST_PAUSE_S", 0.2)
    process = TickProcess(ControlPaths.of(data_dir), command("sys.exit(75)"))
    wait_until(lambda: "started again in 0 s" in caplog.text, each=lambda: process.look(is_due=True))
    wait_until(lambda: started(data_dir) >= 2, each=lambda: process.look(is_due=True))
    process.close()
    assert "ended with status 75" in caplog.text


def test_what_cannot_be_started_ends_nothing(data_dir: DataDir, caplog: pytest.LogCaptureFixture) -> None:
    process = TickProcess(ControlPaths.of(data_dir), ("/no/such/program",))
    process.look(is_due=True)
    process.look(is_due=True)
    process.close()
    assert caplog.text.count("could not be started") == 1


def test_a_scheduler_starts_it_for_recurring_schedules_only(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    def tick() -> None:
        scheduler = Scheduler(data_dir, parse_spec, tick_command=command(""), clock=clock)
        others = set(psutil.Process().children())
        scheduler.tick()
        for child in set(psutil.Process().children()) - others:
            child.wait(60)
        scheduler.close()

    api.schedule(spec, at=clock.now)
    paused = api.schedule(spec, settings=ScheduleSettings(every_minutes=5))
    api.pause(paused.id)
    tick()
    assert (len(api.list()), started(data_dir)) == (1, 0)
    api.resume(paused.id)
    clock.forward(minutes=5)
    tick()
    assert (len(api.list()), started(data_dir)) == (1, 1)
