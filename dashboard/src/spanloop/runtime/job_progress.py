"""Wait for a job and read its newest metrics."""

import time
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import JobError, SpanloopError
from spanloop.training.jobs.states import JobState

from .command_line import command_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.foundation.paths import DataDir
    from spanloop.training.jobs.entities import StoredJob
    from spanloop.training.jobs.queue_api import QueueApi
    from spanloop.training.jobs.queued_spec import SpecT

JOB_POLL_S: Final = 0.3
_DISPLAYED_METRICS: Final = {
    "batch_reward": "batch reward",
    "actor/pg_loss": "loss",
    "train/loss": "loss",
    "dpo/accuracy": "preferred",
    "actor/grad_norm": "gradient",
    "train/grad_norm": "gradient",
}
"""verl's metric name → short title."""


def await_job(
    api: "QueueApi[SpecT]", data_dir: "DataDir", job_id: str, on_poll: "Callable[[StoredJob[SpecT]], None]"
) -> "StoredJob[SpecT]":
    """Wait until the job has succeeded and return it; call ``on_poll`` several times a second until then.

    Raises:
        JobError: The job failed or was cancelled.
    """
    while not (job := api.get(job_id)).is_finished:
        on_poll(job)
        time.sleep(JOB_POLL_S)
    on_poll(job)
    if job.state is not JobState.SUCCEEDED:
        reason = f": {job.error}" if job.error else "."
        log_command = command_line(f"jobs log {job_id}", data_dir)
        raise JobError(f"Job {job_id} {job.state}{reason}", next_step=f"Read {log_command}")
    return job


def last_metrics(data_dir: "DataDir", job_id: str) -> str:
    """Return the newest values of a few metrics as one line; empty before the first."""
    from spanloop.store import connect

    try:
        with connect(data_dir) as store:
            rows = store.query("training_metrics", job_id=job_id)
    except SpanloopError:
        return ""  # a restart of the store hides the metrics for a moment; it must not end the watching
    newest = {str(name): float(value) for _, name, value in rows.iter_rows()}  # rows are ordered by step
    return "  ".join(f"{title} {newest[name]:.3g}" for name, title in _DISPLAYED_METRICS.items() if name in newest)
