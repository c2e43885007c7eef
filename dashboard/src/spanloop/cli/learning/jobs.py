"""``spanloop jobs``: list, watch, cancel and retry training jobs and evaluations."""

import codecs
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line
from spanloop.runtime.job_progress import JOB_POLL_S, await_job, last_metrics

from ..console import err, out, print_table, progress_bar
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.training.jobs.queue_api import QueueApi
    from spanloop.training.spec.job_spec import JobSpec
    from spanloop.training.spec.stored_spec import AnyJob, EvaluationSpec

    AnyJobsApi = QueueApi[JobSpec | EvaluationSpec]

_INTERRUPTED: Final = 130

app = typer.Typer(help="List, watch, cancel and retry training jobs and evaluations.", no_args_is_help=True)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `spanloop jobs list` shows it.")]


def queue_api(data_dir: DataDirOption) -> "AnyJobsApi":
    """Return the API of the jobs of every kind."""
    from spanloop.training.jobs.queue_api import QueueApi
    from spanloop.training.spec.stored_spec import parse_any_spec

    return QueueApi(data_directory(data_dir), parse_any_spec)


@app.command("list")
def list_jobs(
    data_dir: DataDirOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
) -> None:
    """List the newest jobs.

    Example: `spanloop jobs list --limit 5`
    """
    from spanloop.dashboard.view_models.jobs import error_headline

    directory = data_directory(data_dir)
    jobs = queue_api(data_dir).list(limit=limit)
    if not jobs:
        err.print(f"no jobs yet; queue one with: {command_line('train NAME', directory)}", markup=False)
        return
    print_table(
        ("job", "kind", "base", "state", "step", "result", "error"),
        (
            (
                job.id,
                job.spec.kind,
                job.spec.base,
                job.state,
                f"{job.step}/{job.steps_total or '?'}",
                job.model_version or "",
                error_headline(job.error),
            )
            for job in jobs
        ),
    )


@app.command()
def show(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Show one job with its complete specification.

    Example: `spanloop jobs show dr_grpo-20261120-081402-e9822c24`
    """
    requested_job = queue_api(data_dir).get(job)
    out.print_json(requested_job.spec.model_dump_json())
    for name in (
        "state",
        "attempt",
        "created_at",
        "started_at",
        "finished_at",
        "step",
        "steps_total",
        "model_version",
        "retry_at",
        "error",
    ):
        value = getattr(requested_job, name)
        out.print(f"[dim]{name}[/dim] {escape('-' if value in {None, ''} else str(value))}")


@app.command()
def log(
    job: JobArgument,
    data_dir: DataDirOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print the whole log until the job ends.")] = False,
) -> None:
    """Print the end of a job's log.

    Example: `spanloop jobs log --follow dr_grpo-20261120-081402-e9822c24`
    """
    if follow:
        watch_log(queue_api(data_dir), data_directory(data_dir), job)
    else:
        typer.echo(queue_api(data_dir).log(job), nl=False)


@app.command()
def wait(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Watch a job until it ends; exit code 1 when it fails. Ctrl-C stops watching, not the job.

    Example: `spanloop jobs wait dr_grpo-20261120-081402-e9822c24`
    """
    watch_job(queue_api(data_dir), data_directory(data_dir), job)


@app.command()
def cancel(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Cancel a job: a queued one at once, a running one within seconds. A finished job does not change.

    Example: `spanloop jobs cancel dr_grpo-20261120-081402-e9822c24`
    """
    out.print(f"{job} {queue_api(data_dir).cancel(job).state}", markup=False)


@app.command()
def retry(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Queue a failed or cancelled job again; it continues from its last checkpoint.

    Example: `spanloop jobs retry dr_grpo-20261120-081402-e9822c24`
    """
    out.print(f"{job} {queue_api(data_dir).retry(job).state}", markup=False)


def watch_job(api: "AnyJobsApi", data_dir: "DataDir", job_id: str) -> None:
    """Show a job's progress and newest metrics until it has succeeded.

    Raises:
        JobError: The job failed or was cancelled.
        Exit: Ctrl-C, which stops the watching and leaves the job running.
    """
    from spanloop.training.models.registry import Registry

    shown_step, metrics = 0, ""
    with progress_bar() as bar:
        task = bar.add_task("", total=None, note="")

        def show(job: "AnyJob") -> None:
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
    if not job.model_version:
        out.print(f"{job_id} evaluated {job.spec.base}", markup=False)
        return
    out.print(f"{job_id} made {job.model_version}", markup=False)
    ended_early = Registry(data_dir).get(job.model_version).metadata.get("ended_early")
    if ended_early:
        err.print(f"ended early: {ended_early}", markup=False)


def watch_log(api: "AnyJobsApi", data_dir: "DataDir", job_id: str) -> None:
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
