"""kill -9 of a job while its version is evaluated."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.jobs.states import JobState
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.run.deployment_of_job import TrainedJob
from spanloop.training.run.job_api import JobApi

from ..gateway_stand_in import GatewayStandIn
from .test_deployment_of_job import TASKS, configure, trained

__all__ = ["trained"]

FINISH = """
import sys
from spanloop.foundation.paths import DataDir
from spanloop.training.run.deployment_of_job import TrainedJob, deploy_as_asked
from spanloop.training.run.monitor.job_trace import JobTrace
from spanloop.training.run.job_api import JobApi
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.serving_pause import ServingPause

data_dir, job_id, token, reference = DataDir(sys.argv[1]).open(), sys.argv[2], int(sys.argv[3]), sys.argv[4]
log = lambda text: print(text, flush=True)
trained = TrainedJob(data_dir, JobApi(data_dir).get(job_id), token, Registry(data_dir).get(reference))
deploy_as_asked(trained, JobTrace(job_id, 1, {}), ServingPause(data_dir.path, job_id, log), log)
"""
SLOW_AGENT = """
import os, time

def solve(task):
    time.sleep(0.1)
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0])
def test_kill_9_of_an_evaluating_job_counts_no_attempt_twice_and_decides_once(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn, seconds: float
) -> None:
    job = trained(deploy=True)
    configure(data_dir, "m@v5")
    (data_dir.path / "solver.py").write_text(SLOW_AGENT)
    command = [sys.executable, "-c", FINISH, str(data_dir.path), job.job.id, str(job.token), job.version.reference]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ.copy(), start_new_session=True)

    process = start()
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert start().wait(timeout=200) == 0
    attempts = store.query("attempt_runs", run_id="")
    assert attempts.sort("model").select("model", "attempts", "finished").rows() == [
        ("m@v4", TASKS, TASKS),
        ("m@v5", TASKS, TASKS),
    ]
    (decision,) = Decisions(data_dir).list()
    assert (decision.outcome, decision.evidence.looks) == (PromotionOutcome.PROMOTED, 1)
    assert len(decision.evidence.pairs) == TASKS
    assert gateway.served == "m@v5"
    assert JobApi(data_dir).get(job.job.id).state is JobState.EVALUATING
