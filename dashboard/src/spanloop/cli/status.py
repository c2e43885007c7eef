"""``spanloop status``: what runs, what is stored, what is queued."""

from typing import TYPE_CHECKING

import typer
from rich.table import Table

from .console import out
from .options import DataDirOption, data_directory

if TYPE_CHECKING:
    from spanloop.store import DataDir

SERVICES = ("clickhouse", "collector", "gateway", "pipeline", "scheduler", "dashboard")


def status(data_dir: DataDirOption = None) -> None:
    """Show which services run, what the store holds and which jobs are open. Exit code 3 when nothing runs."""
    directory = data_directory(data_dir)
    out.print(f"[bold]data directory[/bold] {directory.path}")
    services = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("service", "state", "address", "process"):
        services.add_column(title)
    running = [(name, directory.running(name)) for name in SERVICES]
    for name, found in running:
        if found is None:
            services.add_row(name, "[dim]stopped[/dim]", "", "")
        else:
            services.add_row(name, "[green]running[/green]", found.url, str(found.pid))
    out.print(services)
    if not any(found for _, found in running):
        out.print("nothing runs here; start it with: spanloop up")
        raise typer.Exit(3)
    _print_store(directory)
    _print_jobs(directory)


def _print_store(directory: "DataDir") -> None:
    from spanloop.semconv.errors import SpanloopError
    from spanloop.store import connect

    try:
        with connect(directory) as store:
            counts = store.query("store_counts")
    except SpanloopError as error:
        out.print(f"[yellow]store:[/yellow] {error}")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("stored")
    table.add_column("rows", justify="right")
    for name, rows in counts.select(counts.columns[:2]).iter_rows():
        table.add_row(str(name), f"{rows:,}")
    out.print(table)


def _print_jobs(directory: "DataDir") -> None:
    from spanloop.training.jobs import JobApi

    jobs = [job for job in JobApi(directory).list() if job.state in {"queued", "running", "cancelling"}]
    for job in jobs:
        out.print(f"job {job.id}  {job.spec.kind} of {job.spec.base}  {job.state}  step {job.step}/{job.steps_total}")
