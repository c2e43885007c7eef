"""``spanloop jobs``: look at training jobs and schedules, cancel and retry them."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from .console import err, out
from .follow import follow
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.training.jobs import JobApi

app = typer.Typer(help="Look at training jobs and schedules, cancel and retry them.", no_args_is_help=True)

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, as listed.")]


def _api(data_dir: DataDirOption) -> "JobApi":
    from spanloop.training.jobs import JobApi

    return JobApi(data_directory(data_dir))


@app.command("list")
def list_jobs(
    data_dir: DataDirOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many, the newest first.")] = 20,
) -> None:
    """Show the newest jobs."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("job", "kind", "base", "state", "step", "result", "error"):
        table.add_column(title)
    jobs = _api(data_dir).list(limit=limit)
    for job in jobs:
        reason = (job.error or "").splitlines()
        step = f"{job.step}/{job.steps_total or '?'}"
        table.add_row(
            job.id, job.spec.kind, job.spec.base, job.state, step, job.model_version or "", reason[0] if reason else ""
        )
    if not jobs:
        err.print("no jobs yet; queue one with: spanloop train NAME")
        return
    out.print(table)


@app.command()
def show(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Show one job with its whole spec."""
    found = _api(data_dir).get(job)
    out.print_json(found.spec.model_dump_json())
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
        out.print(f"[dim]{name}[/dim] {getattr(found, name)}")


@app.command()
def log(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Print the end of what a job printed."""
    out.print(_api(data_dir).log(job), markup=False)


@app.command()
def wait(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Follow a job until it ends; exit code 1 when it fails."""
    follow(_api(data_dir), job)


@app.command()
def cancel(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Cancel a queued or running job."""
    out.print(f"{job} {_api(data_dir).cancel(job).state}")


@app.command()
def retry(job: JobArgument, data_dir: DataDirOption = None) -> None:
    """Queue a failed or cancelled job again; it goes on from its last checkpoint."""
    out.print(f"{job} {_api(data_dir).retry(job).state}")


@app.command()
def schedules(data_dir: DataDirOption = None) -> None:
    """Show what is scheduled."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("schedule", "kind", "base", "cron", "next (UTC)"):
        table.add_column(title)
    found = _api(data_dir).schedules()
    for each in found:
        due = f"{each.next_at:%Y-%m-%d %H:%M}" if each.next_at else "never again"
        table.add_row(each.id, each.spec.kind, each.spec.base, each.cron or "once", due)
    if not found:
        err.print("nothing is scheduled; add one with: spanloop train NAME --cron '0 3 * * *'")
        return
    out.print(table)


@app.command()
def unschedule(
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="As listed by 'schedules'.")],
    data_dir: DataDirOption = None,
) -> None:
    """Forget a schedule; the jobs that it submitted stay."""
    _api(data_dir).unschedule(schedule)
    out.print(f"{schedule} removed")
