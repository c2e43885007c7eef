"""``spanloop status``: what runs, what is served, what is stored, what waits."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from spanloop.runtime import service_health
from spanloop.runtime.command_line import command_line
from spanloop.runtime.status_report import open_jobs, report, services, stored

from .console import out, print_table
from .options import DataDirOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanloop.datadir import DataDir

_LITTLE_FREE_BYTES: Final = 2**30


def status(
    data_dir: DataDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object, for a program.")] = False,
) -> None:
    """Show which services run, which model is served, what is stored, what waits and which jobs are open.

    Exit code 3 when nothing runs.

    Example: `spanloop status --data-dir ./data`
    """
    directory = _existing(data_dir, as_json=as_json)
    if as_json:
        found = report(directory)
        typer.echo(json.dumps(found, indent=1))
        if not any(each["pid"] for each in found["services"]):
            raise typer.Exit(3)
        return
    out.print(f"[bold]data directory[/bold] {escape(str(directory.path))}")
    if not _print_services(directory):
        out.print(f"nothing runs here; start it with: {command_line('up', directory)}", markup=False)
        raise typer.Exit(3)
    engine = service_health.gateway_health(directory)
    _print_served(directory, engine)
    _print_store(directory)
    _print_collector(service_health.collector_health(directory))
    _print_captures(engine)
    _print_jobs(directory)
    _print_disk(directory)


def _existing(path: Path | None, *, as_json: bool) -> "DataDir":
    """The data directory, checked; looking at one that is not there makes none."""
    from spanloop.datadir import DataDir

    directory = DataDir(path)
    if not directory.path.exists():
        if as_json:
            typer.echo(json.dumps({"data_dir": str(directory.path), "exists": False}))
            raise typer.Exit(3)
        out.print(f"there is no data directory {directory.path}", markup=False)
        out.print(f"nothing runs here; start it with: {command_line('up', directory)}", markup=False)
        raise typer.Exit(3)
    return directory.open()


def _print_services(directory: "DataDir") -> bool:
    rows: list[tuple[str, str, str, str]] = []
    states = services(directory)
    for each in states:
        process = str(each["pid"]) if each["pid"] else each["note"]
        rows.append((each["name"], "running" if each["is_running"] else "stopped", each["url"], process))
    grpc = directory.running("collector-grpc")
    if grpc is not None:
        rows.append(("collector, gRPC", "running", grpc.url, str(grpc.pid)))
    print_table(("service", "state", "address", "process"), rows)
    return any(each["pid"] for each in states)


def _print_served(directory: "DataDir", engine: service_health.GatewayHealth | None) -> None:
    if engine is None:
        return
    if engine.model:
        out.print(f"[bold]model[/bold] {escape(engine.model)}, {escape(engine.state)}")
    else:
        out.print(f"[bold]model[/bold] none; serve one with: {escape(command_line('models deploy NAME', directory))}")
    if engine.error:
        out.print(f"  {escape(engine.error)}")


def _print_store(directory: "DataDir") -> None:
    held = stored(directory)
    if isinstance(held, str):
        out.print(f"[yellow]store:[/yellow] {escape(held)}")
        return
    rows = [(name.replace("_", " "), f"{count:,}") for name, count in held.items()]
    print_table(("stored", "rows"), rows, numbers=("rows",))


def _print_collector(found: service_health.CollectorHealth | None) -> None:
    if found is None:
        return
    out.print(f"[bold]accepted[/bold] {_counts(found.accepted)}, since the collector's start")
    for title, counts in (
        ("rejected", found.rejected),
        ("refused requests", found.refused_requests),
        ("redacted", found.redacted),
    ):
        if counts:
            out.print(f"[bold]{title}[/bold] {_counts(counts)}")
    inserts = found.insert_latency
    if inserts.get("count"):
        p50, p99 = (_bound(inserts[name]) for name in ("p50_s", "p99_s"))
        failed = f", {found.insert_failures:,} attempts failed" if found.insert_failures else ""
        out.print(
            f"[bold]inserted[/bold] {found.inserted:,} rows, the last at {found.last_insert[:19]}Z; "
            f"a block takes {inserts['mean_s']:.2f} s (half {p50}, 99 % {p99}){failed}"
        )
    waiting, age_s = int(found.spool["bytes"]), found.spool["oldest_age_s"]
    age = f", the oldest for {age_s:.0f} s" if waiting else ""
    trouble = f"; ClickHouse: {found.store}" if found.store != "ok" else ""
    trouble += f"; disk: {found.disk}" if found.disk != "ok" else ""
    out.print(f"[bold]spans waiting[/bold] {waiting:,} bytes{age}{escape(trouble)}")
    if found.spool.get("quarantined"):
        out.print(f"[yellow]spool[/yellow] {int(found.spool['quarantined']):,} damaged stretches were set aside")


def _counts(counts: "Mapping[str, int]") -> str:
    each = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return escape(f"{sum(counts.values()):,} ({each})" if counts else "0")


def _bound(seconds: float | None) -> str:
    return "above 300 s" if seconds is None else f"up to {seconds:g} s"


def _print_captures(engine: service_health.GatewayHealth | None) -> None:
    if engine is not None and engine.waiting_bytes:
        out.print(f"[bold]captures waiting[/bold] {engine.waiting_bytes:,} bytes")


def _print_jobs(directory: "DataDir") -> None:
    jobs = open_jobs(directory)
    for job in jobs:
        where = f"step {job['step']}/{job['steps_total'] or '?'}"
        said = f"{job['id']}  {job['kind']} of {job['base']}  {job['state']}  {where}"
        out.print(f"[bold]job[/bold] {escape(said)}")
    if not jobs:
        out.print("[bold]jobs[/bold] none open")


def _print_disk(directory: "DataDir") -> None:
    free_bytes = shutil.disk_usage(directory.path).free
    if free_bytes < _LITTLE_FREE_BYTES:
        out.print(f"[yellow]disk[/yellow] only {free_bytes / 2**20:,.0f} MiB are free; a full disk refuses spans")
