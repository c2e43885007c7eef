"""Watch one job until it ends: its steps and newest metrics, or its log."""

import codecs
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from spanloop.runtime.command_line import command_line
from spanloop.runtime.job_progress import JOB_POLL_S, await_job, last_metrics

from .console import err, out, progress_bar

if TYPE_CHECKING:
    from spanloop.datadir import DataDir
    from spanloop.training.jobs import Job, JobApi

_INTERRUPTED: Final = 130


def follow(api: "JobApi", data_dir: "DataDir", job_id: str) -> None:
    """Show a job's progress and newest metrics until it has succeeded.

    Raises:
        JobError: The job failed or was cancelled.
        Exit: Ctrl-C, which stops the watching and leaves the job running.
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
            err.print(
                f"stopped watching; the job continues: {command_line(f'jobs wait {job_id}', data_dir)}", markup=False
            )
            raise typer.Exit(_INTERRUPTED) from None
    out.print(f"{job_id} made {job.model_version}")


def follow_log(api: "JobApi", data_dir: "DataDir", job_id: str) -> None:
    """Print a job's log from its first line as it grows, until the job ends.

    Raises:
        JobError: There is no such job.
    """
    job = api.get(job_id)
    tail = _Tail(data_dir.jobs / job_id / "log.txt")
    while True:
        is_finished = job.is_finished
        tail.print_new()
        if is_finished:
            return
        time.sleep(JOB_POLL_S)
        job = api.get(job_id)


class _Tail:
    """Prints the bytes appended to a file since the last call; a missing file counts as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def print_new(self) -> None:
        try:
            with self._path.open("rb") as log:
                log.seek(self._read_bytes)
                appended = log.read()
        except FileNotFoundError:
            return
        self._read_bytes += len(appended)
        typer.echo(self._decoder.decode(appended), nl=False)
