"""``spanloop schedules``: add, list, preview, pause, resume and remove schedules of training jobs and of rounds."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory
from .loop import in_folder_of
from .start_options import StartOptions

if TYPE_CHECKING:
    from spanloop.training.run.job_api import JobApi, Schedule, Tick

app = typer.Typer(
    help="Add, list, preview, pause and remove schedules, which submit training jobs (`spanloop train --cron …`) or "
    "begin rounds of a loop (`spanloop schedules add app.toml --cron …`).\n\n"
    "A schedule trains on an episode once: at each tick it submits a job only when there are episodes that can be "
    "trained on and that none of its jobs has used, unless `--replay-ratio` asks for old ones. It has one job at a "
    "time, and ticks that it missed are not made up for.",
    no_args_is_help=True,
)

ScheduleArgument = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="A schedule's id, as `spanloop schedules list` shows it.")
]


def _api(data_dir: DataDirOption) -> "JobApi":
    from spanloop.training.run.job_api import JobApi

    return JobApi(data_directory(data_dir))


@app.command()
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The app's file, such as app.toml.")],
    cron: Annotated[str | None, typer.Option(help="At the times of five cron fields, in UTC.")] = None,
    every: Annotated[str | None, typer.Option(metavar="INTERVAL", help="At an interval: 30m, 6h or 1d.")] = None,
    at: Annotated[datetime | None, typer.Option(help="Once, at this local time.")] = None,
    when_failures: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="When a failure is frequent: 'CLASS of AGENT above 20% of 50'."),
    ] = None,
    data_dir: DataDirOption = None,
) -> None:
    """Let the scheduler begin rounds of a loop, as `spanloop loop FILE` does; it continues an open round first.

    The scheduler runs one loop at a time. The file is read, and all of it checked again, when a round begins; the agent
    has the environment variables of the scheduler. Pausing or removing the schedule interrupts its round, which loses
    at most the attempts that were running.

    Example: `spanloop schedules add app.toml --cron '0 3 * * *'`
    """
    from spanloop.training.loop.app_file import read_app
    from spanloop.training.run.job_api import LoopFile

    start = StartOptions(at, cron, every, None, when_failures, None)
    start.check(wait=False, foreground=False)
    if not start.is_scheduled:
        raise typer.BadParameter("give one of --cron, --every, --at and --when-failures")
    directory = data_directory(data_dir)
    with in_folder_of(directory, file):
        loop_app = read_app(Path(file.name))
    loop = LoopFile(path=str(file.absolute()), model=loop_app.model.name)
    settings = start.settings().model_copy(update={"loop": loop})
    added = _api(data_dir).schedule(loop_app.training(1), cron=cron, at=start.starts_at, settings=settings)
    out.print(f"schedule {added.id}: next at {_next_text(added)} UTC", markup=False)
    err.print(f"what it does: {command_line(f'schedules show {added.id}', directory)}", markup=False)


@app.command("list")
def list_schedules(data_dir: DataDirOption = None) -> None:
    """List the schedules, and what each did at its last tick.

    Example: `spanloop schedules list`
    """
    api = _api(data_dir)
    scheduled = api.schedules()
    if not scheduled:
        hint = command_line("train NAME --cron '0 3 * * *'", data_directory(data_dir))
        err.print(f"nothing is scheduled; add one with: {hint}", markup=False)
        return
    print_table(
        ("schedule", "starts", "base", "trigger", "next (UTC)", "last job", "last tick"),
        (
            (
                each.id,
                each.starts_text,
                each.spec.base,
                each.trigger_text,
                _next_text(each),
                each.last_job_id or "",
                _last_tick(api, each),
            )
            for each in scheduled
        ),
    )


@app.command()
def show(
    schedule: ScheduleArgument,
    data_dir: DataDirOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many ticks, the newest first.")] = 20,
) -> None:
    """Show one schedule, the specification of its job or of its first round's training, and what its ticks did and why.

    Example: `spanloop schedules show schedule-20261120-081343-bb85b936`
    """
    api = _api(data_dir)
    found = api.get_schedule(schedule)
    out.print_json(found.spec.model_dump_json(exclude_defaults=True))
    for name, value in (
        ("starts", found.starts_text),
        ("trigger", found.trigger_text),
        ("next tick", _next_text(found)),
        ("budget", str(found.settings.budget or "-")),
        ("last job", found.last_job_id or "-"),
    ):
        out.print(f"[dim]{name}[/dim] {escape(value)}")
    ticks = api.ticks(schedule, limit=limit)
    if ticks:
        print_table(("tick (UTC)", "what it did", "job"), ((_time(t.at), str(t), t.job_id or "") for t in ticks))


@app.command()
def preview(schedule: ScheduleArgument, data_dir: DataDirOption = None) -> None:
    """Say what the next tick would do if it came now, and why; nothing is queued.

    Example: `spanloop schedules preview schedule-20261120-081343-bb85b936`
    """
    from spanloop.foundation.control.clock import utc_now
    from spanloop.training.dataset.tally import counts_text
    from spanloop.training.run.tick_decision import decide_tick

    directory = data_directory(data_dir)
    found = _api(data_dir).get_schedule(schedule)
    if not found.is_recurring:
        out.print(f"It ticks once. Next tick: {_next_text(found)}", markup=False)
        return
    decision, data = decide_tick(directory, found, now=utc_now())
    unit = "job" if found.settings.loop is None else "round"
    outcome = {"submitted": f"a {unit} starts", "skipped": f"no {unit}", "waiting": f"no {unit} yet"}[decision.outcome]
    out.print(f"{outcome}: {decision.reason}", markup=False)
    out.print(f"[dim]next tick[/dim] {escape(_next_text(found))}")
    if data is not None:
        out.print(f"[dim]new rows[/dim] {escape(str(data.rows))}")
        if data.constrained_by:
            out.print(f"[dim]constrained by[/dim] {escape(counts_text(data.constrained_by))}")
        out.print(f"[dim]steps[/dim] {data.steps:,} of {data.batch_size:,} {found.spec.recipe.batch_unit}")


@app.command()
def pause(schedule: ScheduleArgument, data_dir: DataDirOption = None) -> None:
    """Let a schedule submit no job until it is resumed; a job that has begun goes on.

    Example: `spanloop schedules pause schedule-20261120-081343-bb85b936`
    """
    _api(data_dir).pause(schedule)
    out.print(f"{schedule} paused", markup=False)


@app.command()
def resume(schedule: ScheduleArgument, data_dir: DataDirOption = None) -> None:
    """Let a paused schedule go on at its next time; ticks that it missed are not made up for.

    Example: `spanloop schedules resume schedule-20261120-081343-bb85b936`
    """
    out.print(f"{schedule}: next at {_next_text(_api(data_dir).resume(schedule))} UTC", markup=False)


@app.command()
def remove(schedule: ScheduleArgument, data_dir: DataDirOption = None) -> None:
    """Remove a schedule; the jobs that it submitted stay.

    Example: `spanloop schedules remove schedule-20261120-081343-bb85b936`
    """
    _api(data_dir).unschedule(schedule)
    out.print(f"{schedule} removed", markup=False)


def _last_tick(api: "JobApi", schedule: "Schedule") -> str:
    ticks: tuple[Tick, ...] = api.ticks(schedule.id, limit=1)
    return str(ticks[0]) if ticks else ""


def _next_text(schedule: "Schedule") -> str:
    if schedule.paused_at is not None:
        return f"paused since {_time(schedule.paused_at)}"
    return _time(schedule.next_at) if schedule.next_at else "never again"


def _time(moment: "datetime") -> str:
    return f"{moment:%Y-%m-%d %H:%M}"
