"""Runs ``run_job`` as the scheduler does: under a lease, in a process of its own."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.marked import find_processes
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store.client import Address
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.job_outcomes import mark_failed, requeue_interrupted
from spanloop.training.jobs.job_queue import find_job, lease_next_job
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.processes.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV, JobMark
from spanloop.training.recipes.choices import LossAggregation
from spanloop.training.run.job_api import Job, JobApi, JobSpec
from spanloop.training.spec.optimiser import Optimiser
from spanloop.training.spec.run_settings import RunSettings
from spanloop.training.verl_plugin.train_plan import TrainPlan

from .recipe_kinds import take_part, take_settings


def a_plan(folder: Path, **changes: Any) -> TrainPlan:
    """A plan whose files all lie in ``folder``; settings of its recipe, ``kind``, are among ``changes``."""
    recipe: dict[str, Any] = {
        "kl_budget": None,
        "kl_coefficient": 0.0,
        "loss_aggregation": LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM,
    }
    changes = recipe | changes
    return TrainPlan(
        recipe=take_settings(changes.pop("kind", "dr_grpo"), changes),
        optimiser=take_part(Optimiser, {"learning_rate": 2.5e-6}, changes),
        run=take_part(RunSettings, {}, changes),
        job_id="job-1",
        model_path=folder / "model",
        dataset_path=folder / "dataset.parquet",
        checkpoint_dir=folder / "checkpoints",
        metrics_path=folder / "metrics-1.jsonl",
        failure_path=folder / "failure.json",
        steps=7,
        batch_size=3,
        max_prompt_tokens=10,
        max_response_tokens=20,
        micro_batch_tokens=4096,
        save_every_steps=2,
        ray_temp_dir=folder / "ray",
        threads=1,
    ).model_copy(update=changes)


def url_of(address: Address) -> str:
    """The value of ``SPANLOOP_CLICKHOUSE_URL`` for a process that uses ``address``."""
    credentials = f"{address.user}:{address.password}"
    return f"{address.scheme}://{credentials}@{address.host}:{address.port}/{address.database}"


class Runner(NamedTuple):
    """A data directory and the ClickHouse that its jobs use."""

    data_dir: DataDir
    address: Address

    def start(self, job_id: str, log_path: Path) -> tuple[subprocess.Popen[bytes], JobMark]:
        """Lease the job and start its process; stdout and stderr go to ``log_path``."""
        now = utc_now()
        with ControlDatabase(ControlPaths.of(self.data_dir)).write() as session:
            lease = lease_next_job(session, owner="test", now=now, until=now + timedelta(hours=1))
        assert lease is not None
        assert lease.job_id == job_id
        with log_path.open("ab") as log:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "spanloop.training.run.run_job"),
                    *("--data-dir", str(self.data_dir.path), "--job", job_id),
                ],
                env=os.environ
                | {
                    CLICKHOUSE_URL_ENV: url_of(self.address),
                    JOB_ID_ENV: job_id,
                    JOB_TOKEN_ENV: str(lease.token),
                    "TMPDIR": "/tmp",
                },
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process, JobMark(job_id, lease.token)

    def submit(self, spec: JobSpec) -> Job:
        """Queue a job."""
        return JobApi(self.data_dir).submit(spec)

    def run(self, spec: JobSpec, log_path: Path, *, timeout_s: float = 280) -> tuple[Job, int, str]:
        """Submit and run a job: the job afterwards, its exit status and its log. No process of it is left."""
        job = self.submit(spec)
        process, mark = self.start(job.id, log_path)
        status = process.wait(timeout=timeout_s)
        assert find_processes(None, mark) == []
        return JobApi(self.data_dir).get(job.id), status, log_path.read_text(errors="replace")

    def fail(self, job_id: str) -> None:
        """What the scheduler does after the job has ended by itself with an error."""
        with ControlDatabase(ControlPaths.of(self.data_dir)).write() as session:
            token = find_job(session, job_id).lease_token
            mark_failed(session, JobLease(job_id, token), now=utc_now(), error="ended with an error")

    def requeue(self, mark: JobMark) -> None:
        """What the scheduler does after it has seen that the job's processes were killed."""
        with ControlDatabase(ControlPaths.of(self.data_dir)).write() as session:
            requeue_interrupted(
                session,
                JobLease(mark.job_id, mark.newest_token),
                now=utc_now(),
                error="killed by the test",
                max_attempts=3,
            )
