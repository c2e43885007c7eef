"""``spanloop train --foreground`` up to the job's process; ``test_backbones`` has a whole job."""

from datetime import timedelta

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.job_queue import lease_next_job
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.states import JobState
from spanloop.training.run.foreground import insert_leased, run_in_foreground
from spanloop.training.run.job_api import Backbone, JobApi, JobSpec

from ..training_running import Runner

SPEC = JobSpec.of(base="tiny", backbone=Backbone.DEBUG)


def test_no_scheduler_can_lease_the_job(data_dir: DataDir) -> None:
    database = ControlDatabase(ControlPaths.of(data_dir))
    lease = insert_leased(database, SPEC)
    with database.write() as session:
        now = utc_now()
        assert lease_next_job(session, owner="scheduler", now=now, until=now + timedelta(hours=1)) is None
    job = JobApi(data_dir).get(lease.job_id)
    assert (job.state, job.attempt) == (JobState.RUNNING, 1)


def test_a_job_that_fails_is_recorded(runner: Runner) -> None:
    """No ClickHouse runs on this data directory."""
    job = run_in_foreground(runner.data_dir, SPEC)
    assert job.state is JobState.FAILED
    assert "its messages are in the terminal" in job.error
