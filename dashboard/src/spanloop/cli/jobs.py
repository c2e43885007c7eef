"""``spanloop jobs``: list, watch, cancel and retry training jobs, and list and remove schedules."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line

from .console import err, out, print_table
from .follow import follow as follow_job
from .follow import follow_log
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.training.jobs import JobApi

app = typer.Typer(help="List, watch, cancel and retry training jobs, and manage schedules.", no_args_is_help=True)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as `spanloop jobs list` shows it.")]


def _api(data_dir: DataDirOption) -> "JobApi":
    from spanloop.training.jobs import JobApi

    return JobApi(data_directory(data_dir))


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
    jobs = _api(data_dir).list(limit=limit)
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

    Example: `spanloop jobs show grpo-20261120-081402-e9822c24`
    """
    requested_job = _api(data_dir).get(job)
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
        "error",
    ):
        value = getattr(requested_job, name)
        out.print(f"[dim]{name}[/dim] {escape('-' if value in {None, ''} else str(value))}")


@app.command()
def log(
    job: JobArgument,
    data_dir: DataDirOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print the whole log, and new lines until the job ends.")
    ] = False,
) -> None:
    """Print the end of a job's log.

    Example: `spanloop jobs log --follow grpo-20261120-081402-e9822c24`
    """
    if follow:
        follow_log(_api(data_dir), data_directory(data_dir), job)
    else:
        typer.echo(_api(data_dir).log(job), nl=False)


@app.command()
def wait(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Watch a job until it ends; exit code 1 when it fails. Ctrl-C stops watching, not the job.

    Example: `spanloop jobs wait grpo-20261120-081402-e9822c24`
    """
    follow_job(_api(data_dir), data_directory(data_dir), job)


@app.command()
def cancel(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Cancel a job: a queued one at once, a running one within seconds. A finished job does not change.

    Example: `spanloop jobs cancel grpo-20261120-081402-e9822c24`
    """
    out.print(f"{job} {_api(data_dir).cancel(job).state}", markup=False)


@app.command()
def retry(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Queue a failed or cancelled job again; it continues from its last checkpoint.

    Example: `spanloop jobs retry grpo-20261120-081402-e9822c24`
    """
    out.print(f"{job} {_api(data_dir).retry(job).state}", markup=False)


@app.command()
def schedules(data_dir: DataDirOption = None) -> None:
    """List the schedules.

    Example: `spanloop jobs schedules`
    """
    scheduled = _api(data_dir).schedules()
    if not scheduled:
        hint = command_line("train NAME --cron '0 3 * * *'", data_directory(data_dir))
        err.print(f"nothing is scheduled; add one with: {hint}", markup=False)
        return
    print_table(
        ("schedule", "kind", "base", "cron", "next (UTC)", "last job"),
        (
            (
                each.id,
                each.spec.kind,
                each.spec.base,
                each.cron or "once",
                f"{each.next_at:%Y-%m-%d %H:%M}" if each.next_at else "never again",
                each.last_job_id or "",
            )
            for each in scheduled
        ),
    )


@app.command()
def unschedule(
    schedule: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A schedule's id, as `spanloop jobs schedules` shows it.")
    ],
    data_dir: DataDirOption = None,
) -> None:
    """Remove a schedule; the jobs that it submitted stay.

    Example: `spanloop jobs unschedule schedule-20261120-081343-bb85b936`
    """
    _api(data_dir).unschedule(schedule)
    out.print(f"{schedule} removed", markup=False)
