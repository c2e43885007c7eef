"""Watch one job until it ends: its steps, its last metrics, or what it prints."""

import codecs
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import JobError, SpanloopError

from .console import err, out, progress_bar
from .options import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from spanloop.datadir import DataDir
    from spanloop.training.jobs import Job, JobApi

_POLL_S: Final = 0.3
_INTERRUPTED: Final = 130
_SHOWN_METRICS: Final = {
    "critic/rewards/mean": "reward",
    "actor/pg_loss": "loss",
    "train/loss": "loss",
    "actor/grad_norm": "gradient",
    "train/grad_norm": "gradient",
}
"""verl's names and what the bar calls them."""


def await_job(api: "JobApi", data_dir: "DataDir", job_id: str, on_poll: "Callable[[Job], None]") -> "Job":
    """Return the job when it has succeeded; ``on_poll`` sees it several times a second until then.

    Raises:
        JobError: It failed or was cancelled.
    """
    while not (job := api.get(job_id)).is_finished:
        on_poll(job)
        time.sleep(_POLL_S)
    on_poll(job)
    if job.state is not JobState.SUCCEEDED:
        reason = f": {job.error}" if job.error else "."
        next_step = command(f"jobs log {job_id}", data_dir)
        raise JobError(f"Job {job_id} {job.state}{reason}", next_step=f"Read {next_step}")
    return job


def follow(api: "JobApi", data_dir: "DataDir", job_id: str) -> None:
    """Show a job's progress and last metrics until it has succeeded.

    Raises:
        JobError: It failed or was cancelled.
        Exit: Ctrl-C, which ends the watching and not the job.
    """
    shown_step, metrics = 0, ""
    with progress_bar() as bar:
        task = bar.add_task("", total=None, note="")

        def show(job: "Job") -> None:
            nonlocal shown_step, metrics
            if job.step != shown_step:
                shown_step, metrics = job.step, last_metrics(data_dir, job_id)
            bar.update(task, description=job.state, completed=job.step, total=job.steps_total or None, note=metrics)

        try:
            job = await_job(api, data_dir, job_id, show)
        except KeyboardInterrupt:
            bar.stop()
            err.print(f"no longer watched; the job goes on: {command(f'jobs wait {job_id}', data_dir)}", markup=False)
            raise typer.Exit(_INTERRUPTED) from None
    out.print(f"{job_id} made {job.model_version}")


def last_metrics(data_dir: "DataDir", job_id: str) -> str:
    """The newest value of the few metrics that tell how it goes; empty while there are none."""
    from spanloop.store import connect

    try:
        with connect(data_dir) as store:
            rows = store.query("training_metrics", job_id=job_id)
    except SpanloopError:
        return ""  # a bar without metrics is better than a followed job that the store's restart ends
    newest = {str(name): float(value) for _, name, value in rows.iter_rows()}  # by step: the last one wins
    return "  ".join(f"{title} {newest[name]:.3g}" for name, title in _SHOWN_METRICS.items() if name in newest)


def follow_log(api: "JobApi", data_dir: "DataDir", job_id: str) -> None:
    """Print what a job prints, from its first line on, until it ends.

    Raises:
        JobError: There is no such job.
    """
    job = api.get(job_id)
    printer = _Tail(data_dir.jobs / job_id / "log.txt")
    while True:
        is_finished = job.is_finished
        printer.print_new()
        if is_finished:
            return
        time.sleep(_POLL_S)
        job = api.get(job_id)


class _Tail:
    """Prints what has been appended to a file since the last look; a file that does not exist yet is empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def print_new(self) -> None:
        try:
            with self._path.open("rb") as log:
                log.seek(self._read_bytes)
                new = log.read()
        except FileNotFoundError:
            return
        self._read_bytes += len(new)
        typer.echo(self._decoder.decode(new), nl=False)
