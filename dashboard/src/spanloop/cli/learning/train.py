"""``spanloop train``: queue or schedule a training job, from options, a job file or both."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanloop.foundation.paths.service_states import may_run_elsewhere
from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..generated_options import given_options
from ..options import DataDirOption, data_directory
from .jobs import queue_api, watch_job
from .start_options import StartOptions

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.training.run.job_api import JobApi, JobSpec

_WHEN: Final = "When it starts"


def train(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="[MODEL | JOB.toml]",
            help="The model to start from, as NAME or NAME@VERSION; or a file of settings, which options override.",
            show_default=False,
        ),
    ] = "",
    data_dir: DataDirOption = None,
    at: Annotated[
        datetime | None, typer.Option(help="Start once, at this local time instead of now.", rich_help_panel=_WHEN)
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option(help="Start repeatedly, by five cron fields in UTC, such as '0 3 * * *'.", rich_help_panel=_WHEN),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(help="Start repeatedly, after an interval such as 30m, 6h or 1d.", rich_help_panel=_WHEN),
    ] = None,
    after_transitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Start whenever so many model calls can be trained on that no earlier job of the schedule used.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    when_failures: Annotated[
        str | None,
        typer.Option(
            help="Start when a failure class is frequent: 'CLASS of AGENT above 20% of 50' is more than 20 % of the "
            "agent's last 50 episodes; leave 'of AGENT' out for all agents.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="The most that the schedule uses: '3 jobs/week' or '600 minutes/month', back from now.",
            rich_help_panel=_WHEN,
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Watch the job until it ends.")] = False,
    foreground: Annotated[
        bool,
        typer.Option(
            "--foreground", help="Run the job in this terminal, without a scheduler. Breakpoints need --backbone debug."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the job would train on and need; queue nothing.")
    ] = False,
) -> None:
    """Train a model on stored episodes, now or on a schedule.

    This command queues the job; the scheduler of a running spanloop (`spanloop up`) runs it. A job that starts
    repeatedly trains on an episode once, and starts only when there are new ones (`spanloop schedules --help`).

    Example: `spanloop train tiny --steps 20 --deploy-always --wait`

    Example: `spanloop train mine@champion --deploy --every 6h --budget '3 jobs/week'`
    """
    from spanloop.training.run.job_api import JobApi

    start = StartOptions(at, cron, every, after_transitions, when_failures, budget)
    start.check(wait=wait, foreground=foreground)
    spec = _spec(context, job)
    directory = data_directory(data_dir)
    if dry_run:
        _print_preview(directory, spec)
        return
    if foreground:
        _run_here(directory, spec)
        return
    api = JobApi(directory)
    if start.is_scheduled:
        _schedule(directory, api, spec, start)
        return
    queued = api.submit(spec)
    out.print(queued.id, markup=False)
    if directory.running("scheduler") is None and not may_run_elsewhere(directory.path, "scheduler"):
        err.print(f"no scheduler runs; the job waits until: {command_line('up', directory)}", markup=False)
    if wait:
        watch_job(queue_api(directory.path), directory, queued.id)
    else:
        err.print(f"watch it with: {command_line(f'jobs wait {queued.id}', directory)}", markup=False)


def _schedule(directory: "DataDir", api: "JobApi", spec: "JobSpec", start: StartOptions) -> None:
    schedule = api.schedule(spec, cron=start.cron, at=start.starts_at, settings=start.settings())
    out.print(f"schedule {schedule.id}: next at {schedule.next_at:%Y-%m-%d %H:%M} UTC", markup=False)
    if start.repeats:
        command = command_line(f"schedules preview {schedule.id}", directory)
        err.print(f"see what it would do: {command}", markup=False)


def _run_here(directory: "DataDir", spec: "JobSpec") -> None:
    from spanloop.training.jobs.states import JobState
    from spanloop.training.run.foreground import run_in_foreground

    job = run_in_foreground(directory, spec)
    out.print(f"{job.id}: {job.state} {job.model_version}".rstrip(), markup=False)
    if job.state is not JobState.SUCCEEDED:
        raise typer.Exit(1)


def _spec(context: typer.Context, job: str) -> "JobSpec":
    """Return the spec of the job file, if any, and of the options, which win.

    Raises:
        ConfigurationError: The file cannot be read, or a setting is unknown or invalid.
    """
    from spanloop.training.spec.job_file import build_spec, read_job_file

    options = given_options(context)
    if job.endswith(".toml"):
        return build_spec(read_job_file(Path(job)) | options, where=job)
    if job and "base" in options:
        raise typer.BadParameter("name the model once: as the argument, or with --base")
    return build_spec(({"base": job} if job else {}) | options, where="spanloop train")


def _print_preview(directory: "DataDir", spec: "JobSpec") -> None:
    from spanloop.training.run.preview import preset_text, preview_stages

    for stage in preview_stages(directory, spec):
        if stage.title:
            out.print(f"{stage.title}, of the rows that are stored now", markup=False)
        print_table(("", stage.heading), stage.rows)
    if preset := preset_text(spec):
        out.print(f"preset {preset}", markup=False)
