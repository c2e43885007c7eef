"""Watch one job until it ends."""

import time
from typing import TYPE_CHECKING, Final

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import JobError

from .console import out, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.training.jobs import Job, JobApi

_POLL_S: Final = 0.3
_ENDED: Final = {JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED}


def await_job(api: "JobApi", job_id: str, on_poll: "Callable[[Job], None]") -> "Job":
    """Return the job when it has succeeded; ``on_poll`` sees it several times a second until then.

    Raises:
        JobError: It failed or was cancelled.
    """
    while (job := api.get(job_id)).state not in _ENDED:
        on_poll(job)
        time.sleep(_POLL_S)
    on_poll(job)
    if job.state is not JobState.SUCCEEDED:
        reason = job.error or "no reason given"
        raise JobError(f"Job {job_id} {job.state}: {reason}", next_step=f"spanloop jobs log {job_id}")
    return job


def follow(api: "JobApi", job_id: str) -> None:
    """Show a job's progress until it has succeeded.

    Raises:
        JobError: It failed or was cancelled.
    """
    with progress_bar() as bar:
        task = bar.add_task(job_id, total=None)

        def show(job: "Job") -> None:
            bar.update(task, description=f"{job_id} {job.state}", completed=job.step, total=job.steps_total or None)

        job = await_job(api, job_id, show)
    out.print(f"{job_id} made {job.model_version}")
