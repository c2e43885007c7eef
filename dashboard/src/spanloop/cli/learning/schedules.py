"""``spanloop schedules``: list, preview, pause, resume and remove schedules of training jobs."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spanloop.runtime.command_line import command_line

from ..console import err, out, print_table
from ..options import DataDirOption, data_directory

if TYPE_CHECKING:
    from datetime import datetime

    from spanloop.training.run.job_api import JobApi, Schedule, Tick

app = typer.Typer(
    help="List, preview, pause and remove schedules, which submit training jobs (`spanloop train --cron …`).\n\n"
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
        ("schedule", "kind", "base", "trigger", "next (UTC)", "last job", "last tick"),
        (
            (
                each.id,
                each.spec.kind,
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
    """Show one schedule, the specification of its job, and what its last ticks did and why.

    Example: `spanloop schedules show schedule-20261120-081343-bb85b936`
    """
    api = _api(data_dir)
    found = api.get_schedule(schedule)
    out.print_json(found.spec.model_dump_json(exclude_defaults=True))
    for name, value in (
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
    from spanloop.training.dataset.tally import counts_text
    from spanloop.training.jobs.database.clock import utc_now
    from spanloop.training.run.tick_decision import decide_tick

    directory = data_directory(data_dir)
    found = _api(data_dir).get_schedule(schedule)
    if not found.is_recurring:
        out.print(f"It submits its job once. Next tick: {_next_text(found)}", markup=False)
        return
    decision, data = decide_tick(directory, found, now=utc_now())
    outcome = {"submitted": "a job is submitted", "skipped": "no job", "waiting": "no job yet"}[decision.outcome]
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
