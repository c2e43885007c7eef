"""kill -9 of a loop at any instant: no attempt is counted twice, none is lost, and each round has one end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.loop.rounds import LoopRounds, StepName
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.run.job_api import JobApi

from ..gateway_stand_in import GatewayStandIn
from .support import EVALUATION_TASKS, TRAINING_TASKS, Scheduler, write_model_folder

SLOW_AGENT = """
import os, time

def solve(task):
    time.sleep(0.05)
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""
ROUNDS = 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("first_s", [2.0, 5.0, 8.0])
def test_kill_9_loses_and_doubles_nothing(
    data_dir: DataDir, store: Store, place: Path, gateway: GatewayStandIn, scheduler: Scheduler, *, first_s: float
) -> None:
    (place / "solver.py").write_text(SLOW_AGENT)
    Registry(data_dir).add("m", write_model_folder(place / "weights"))
    command = [sys.executable, "-m", "spanloop.cli", "loop", "app.toml", "--rounds", str(ROUNDS)]
    command += ["--data-dir", str(data_dir.path)]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=place, env=os.environ.copy(), start_new_session=True)

    kills, seconds = 0, first_s
    while True:
        process = start()
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            seconds *= 1.4  # another instant, and further on
            continue
        assert process.returncode == 0
        break
    assert kills >= 2

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
    assert len(JobApi(data_dir).list()) == len(scheduler.jobs) == len(Decisions(data_dir).list()) == ROUNDS
    assert gateway.served == "m@v2"
