"""``spanloop status``: what runs, what is served, what is stored, what waits."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from rich.markup import escape

from spanloop.semconv.enums import JobState
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import SpanloopError

from . import health
from .console import out, print_table
from .options import DataDirOption, command

if TYPE_CHECKING:
    from spanloop.store import DataDir

_LITTLE_FREE_BYTES: Final = 2**30
_OPEN: Final = {JobState.QUEUED, JobState.RUNNING, JobState.CANCELLING}


def status(data_dir: DataDirOption = None) -> None:
    """Show which services run, which model is served, what is stored, what waits and which jobs are open.

    Exit code 3 when nothing runs.

    Example: `spanloop status --data-dir ./data`
    """
    directory = _existing(data_dir)
    out.print(f"[bold]data directory[/bold] {escape(str(directory.path))}")
    if not _print_services(directory):
        out.print(f"nothing runs here; start it with: {command('up', directory)}", markup=False)
        raise typer.Exit(3)
    engine = health.engine(directory)
    _print_served(directory, engine)
    _print_store(directory)
    _print_waiting(directory, engine)
    _print_jobs(directory)
    _print_disk(directory)


def _existing(path: Path | None) -> "DataDir":
    """The data directory, checked; looking at one that is not there makes none."""
    from spanloop.store import DataDir

    directory = DataDir(path)
    if not directory.path.exists():
        out.print(f"there is no data directory {directory.path}", markup=False)
        out.print(f"nothing runs here; start it with: {command('up', directory)}", markup=False)
        raise typer.Exit(3)
    return directory.open()


def _print_services(directory: "DataDir") -> bool:
    from spanloop.dashboard.views.services import service_states

    states = service_states(directory.path, os.environ.get(CLICKHOUSE_URL_ENV, ""))
    rows: list[tuple[str, str, str, str]] = []
    for each in states:
        running = directory.running(each.name)
        process = str(running.pid) if running else each.note
        rows.append((each.name, "running" if each.is_running else "stopped", each.url, process))
    grpc = directory.running("collector-grpc")
    if grpc is not None:
        rows.append(("collector, gRPC", "running", grpc.url, str(grpc.pid)))
    print_table(("service", "state", "address", "process"), rows)
    return any(directory.running(each.name) for each in states)


def _print_served(directory: "DataDir", engine: health.Engine | None) -> None:
    if engine is None:
        return
    if engine.model:
        out.print(f"[bold]model[/bold] {escape(engine.model)}, {escape(engine.state)}")
    else:
        out.print(f"[bold]model[/bold] none; serve one with: {escape(command('models deploy NAME', directory))}")
    if engine.error:
        out.print(f"  {escape(engine.error)}")


def _print_store(directory: "DataDir") -> None:
    from spanloop.store import connect

    try:
        with connect(directory) as store:
            held = store.query("dashboard_totals", since_s=0).row(0, named=True)
    except SpanloopError as error:
        out.print(f"[yellow]store:[/yellow] {escape(str(error))}")
        return
    names = ("spans", "episodes", "transitions", "trainable_transitions")
    rows = [(name.replace("_", " "), f"{held[name]:,}") for name in names]
    print_table(("stored", "rows"), rows, numbers=("rows",))


def _print_waiting(directory: "DataDir", engine: health.Engine | None) -> None:
    spool = health.spool(directory)
    if spool is not None:
        age = f", the oldest for {spool.oldest_age_s:.0f} s" if spool.waiting_bytes else ""
        trouble = f"; ClickHouse: {spool.store}" if spool.store != "ok" else ""
        out.print(f"[bold]spans waiting[/bold] {spool.waiting_bytes:,} bytes{age}{escape(trouble)}")
    if engine is not None and engine.waiting_bytes:
        out.print(f"[bold]captures waiting[/bold] {engine.waiting_bytes:,} bytes")


def _print_jobs(directory: "DataDir") -> None:
    from spanloop.training.jobs import JobApi

    jobs = [job for job in JobApi(directory).list() if job.state in _OPEN]
    for job in jobs:
        where = f"step {job.step}/{job.steps_total or '?'}"
        out.print(f"[bold]job[/bold] {escape(f'{job.id}  {job.spec.kind} of {job.spec.base}  {job.state}  {where}')}")
    if not jobs:
        out.print("[bold]jobs[/bold] none open")


def _print_disk(directory: "DataDir") -> None:
    free_bytes = shutil.disk_usage(directory.path).free
    if free_bytes < _LITTLE_FREE_BYTES:
        out.print(f"[yellow]disk[/yellow] only {free_bytes / 2**20:,.0f} MiB are free; a full disk refuses spans")
