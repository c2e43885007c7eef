"""kill -9 of a loop at any instant: no attempt is counted twice, none is lost, and each round has one end."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import PROCESS_MARK_ENV
from spanloop.store import Store
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.loop.rounds import LoopRounds, StepName
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.run.job_api import JobApi, JobSpec, LoopFile, ScheduleSettings

from ...faults.test_task_runner import ENVIRONMENTS, is_environment
from ..gateway_stand_in import GatewayStandIn
from .support import APP, EVALUATION_TASKS, TRAINING_TASKS, Scheduler, write_model_folder

SLOW_AGENT = """
import os, time

def solve(task):
    time.sleep(0.05)
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""
ACTING_AGENT = """
import os, time
from spanloop.instrumentation import environment

def solve(task):
    with environment() as world:
        while not world.done and os.environ["OPENAI_MODEL"] in task["solvers"]:
            time.sleep(0.2)
            world.step("add", {"number": 1})
        time.sleep(0.2)
"""
ENVIRONMENT = '[environment]\nname = "troublesome:Counter"\noptions = {goal = 1}\n'
ROUNDS = 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("first_s", [2.0, 5.0, 8.0])
def test_kill_9_loses_and_doubles_nothing(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn, scheduler: Scheduler, *, first_s: float
) -> None:
    (place / "solver.py").write_text(SLOW_AGENT)
    assert run_under_kills(data_dir, place, first_s) >= 2
    check_ledgers(data_dir, store)
    assert len(JobApi(data_dir).list()) == len(scheduler.jobs) == len(Decisions(data_dir).list()) == ROUNDS
    assert gateway.served == "m@v2"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("environment")
def test_kill_9_of_loop_and_environments_loses_and_doubles_nothing(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn, scheduler: Scheduler
) -> None:
    (place / "solver.py").write_text(ACTING_AGENT)
    shutil.copy(ENVIRONMENTS / "troublesome.py", place)
    (place / "app.toml").write_text(APP.replace('grader = "exact"\n', "") + ENVIRONMENT)
    assert run_under_kills(data_dir, place, 6.0, kills_environments=True) >= 2
    check_ledgers(data_dir, store)
    assert len(JobApi(data_dir).list()) == len(scheduler.jobs) == len(Decisions(data_dir).list()) == ROUNDS
    assert gateway.served == "m@v2"
    assert not [each for each in find_processes(None, run_marks(data_dir)) if is_environment(each.pid)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("environment")
def test_kill_9_of_the_scheduler_that_runs_rounds_loses_and_doubles_nothing(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn
) -> None:
    (place / "solver.py").write_text(SLOW_AGENT)
    Registry(data_dir).add("m", write_model_folder(place / "weights"))
    trainer = Scheduler(data_dir, place / "weights")
    trainer.start()
    api, kills, seconds = JobApi(data_dir), 0, 8.0
    loop = ScheduleSettings(loop=LoopFile(path=str(place / "app.toml"), model="m"))
    command = [
        sys.executable,
        "-m",
        "spanloop.training.run.scheduler",
        "--data-dir",
        str(data_dir.path),
        "--slots",
        "0",
    ]
    for number in range(1, ROUNDS + 1):
        schedule = api.schedule(JobSpec.of(kind="sft", base="m", steps=2), at=utc_now(), settings=loop)
        while not has_ended(api, schedule.id):
            process, deadline_s = subprocess.Popen(command, start_new_session=True), time.monotonic() + seconds
            while time.monotonic() < deadline_s and not has_ended(api, schedule.id):
                time.sleep(0.1)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills, seconds = kills + 1, seconds * 1.4
        assert [tick.job_id for tick in api.ticks(schedule.id)] == [f"round-{number}"] * 2
    trainer.stop()
    assert kills > ROUNDS
    check_ledgers(data_dir, store)
    assert len(api.list()) == len(trainer.jobs) == len(Decisions(data_dir).list()) == ROUNDS
    assert gateway.served == "m@v2"


def has_ended(api: JobApi, schedule_id: str) -> bool:
    """Whether the end of the schedule's round is recorded."""
    ticks = api.ticks(schedule_id, limit=1)
    return bool(ticks) and ticks[0].outcome is TickOutcome.ENDED


def run_under_kills(data_dir: DataDir, place: Path, first_s: float, *, kills_environments: bool = False) -> int:
    """Run the loop to its end, killed at later and later instants; return how often.

    Args:
        data_dir: The data directory.
        place: The folder of the app.
        first_s: Until the first kill.
        kills_environments: Kill a process of an environment at each third of the time, too.
    """
    Registry(data_dir).add("m", write_model_folder(place / "weights"))
    command = [sys.executable, "-m", "spanloop.cli", "loop", "app.toml", "--rounds", str(ROUNDS)]
    command += ["--data-dir", str(data_dir.path)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=place, env=os.environ.copy(), start_new_session=True)

    kills, seconds = 0, first_s
    while True:
        process, deadline_s = start(), time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < deadline_s:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds / 3)
            kill_an_environment(data_dir, enabled=kills_environments)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            seconds *= 1.4  # another instant, and further on
            continue
        if process.returncode and kills_environments:
            seconds *= 1.4
            continue  # an environment that is killed while it starts ends the command with a sentence
        assert process.returncode == 0
        return kills


def kill_an_environment(data_dir: DataDir, *, enabled: bool) -> None:
    """Kill a process of the pool of whichever run there is."""
    processes = (
        [each for each in find_processes(None, run_marks(data_dir)) if is_environment(each.pid)] if enabled else []
    )
    if processes:
        with suppress(ProcessLookupError):
            os.kill(random.choice(processes).pid, signal.SIGKILL)


def run_marks(data_dir: DataDir) -> VariableMark:
    """Return the mark of all processes of all runs."""
    return VariableMark(PROCESS_MARK_ENV, f"{data_dir.runs}/")


def check_ledgers(data_dir: DataDir, store: Store) -> None:
    """Each round has one end, and each attempt one row and one episode."""
    rounds = LoopRounds(data_dir).list()
    assert [(each.number, each.champion, each.candidate, each.outcome) for each in rounds] == [
        (1, "m@v1", "m@v2", "promoted"),
        (2, "m@v2", "m@v3", "kept"),
    ]
    assert all(each.step(name).is_finished for each in rounds for name in StepName)
    runs = {row["run_id"]: row["attempts"] for row in store.query("attempt_runs", run_id="").to_dicts()}
    assert sorted(runs.values()) == [TRAINING_TASKS] * ROUNDS + [EVALUATION_TASKS] * (ROUNDS + 1)
    sql = "SELECT run_id, task_id, attempt, uniqExact(episode_id) AS episodes FROM attempts GROUP BY ALL"
    assert store.connection.query(sql, doing="counting attempts")["episodes"].to_list() == [1] * sum(runs.values())
