"""``spanloop status``: print services, served model, stored rows, waiting data and open jobs."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from spanloop.runtime import service_health
from spanloop.runtime.command_line import command_line
from spanloop.runtime.status_report import open_jobs, pipelines, report, services, stored
from spanloop.semconv.environment import SERVICE_URL_ENVS, configured_address

from ..console import out, print_table
from ..options import DataDirOption, configured_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanloop.foundation.paths import DataDir
    from spanloop.runtime.status_report import ServiceReport

_LOW_DISK_BYTES: Final = 2**30


def status(
    data_dir: DataDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Show the services, the served model, stored rows, data that waits to be written, and open jobs.

    Exit code 3 when no service runs.

    Example: `spanloop status --data-dir ./data`
    """
    directory = _existing_directory(data_dir, as_json=as_json)
    if as_json:
        status_report = report(directory)
        typer.echo(json.dumps(status_report, indent=1))
        if not _is_any_reachable(status_report["services"]):
            raise typer.Exit(3)
        return
    out.print(f"[bold]data directory[/bold] {escape(str(directory.path))}")
    if not _print_services(directory):
        out.print(f"no service runs; start them with: {command_line('up', directory)}", markup=False)
        raise typer.Exit(3)
    gateway = service_health.gateway_health(directory)
    _print_served_model(directory, gateway)
    _print_store(directory)
    _print_collector(service_health.collector_health(directory))
    _print_pipelines(directory)
    _print_captures(gateway)
    _print_jobs(directory)
    _print_disk(directory)


def _existing_directory(path: Path | None, *, as_json: bool) -> "DataDir":
    """Open and check the data directory; a missing one is reported, and created only where settings name roles."""
    directory = configured_directory(path)
    if not directory.path.exists() and not any(map(configured_address, SERVICE_URL_ENVS)):
        if as_json:
            typer.echo(json.dumps({"data_dir": str(directory.path), "exists": False}))
            raise typer.Exit(3)
        out.print(f"there is no data directory {directory.path}", markup=False)
        out.print(f"no service runs; start them with: {command_line('up', directory)}", markup=False)
        raise typer.Exit(3)
    return directory.open()


def _print_services(directory: "DataDir") -> bool:
    rows: list[tuple[str, str, str, str]] = []
    states = services(directory)
    for state in states:
        process = str(state["pid"]) if state["pid"] else state["note"]
        rows.append((state["name"], _describe(state), state["url"], process))
    grpc = directory.running("collector-grpc")
    if grpc is not None:
        rows.append(("collector, gRPC", "running", grpc.url, str(grpc.pid)))
    print_table(("service", "state", "address", "process"), rows)
    return _is_any_reachable(states)


def _is_any_reachable(states: "list[ServiceReport]") -> bool:
    """Return whether a service runs on this machine, or a setting names the address of another than ClickHouse."""
    return any(state["pid"] or (state["is_running"] and state["name"] != "clickhouse") for state in states)


def _describe(state: "ServiceReport") -> str:
    if state["pid"] or not state["note"]:
        return "running" if state["is_running"] else "stopped"
    return "configured" if state["is_running"] else "unknown"


def _print_served_model(directory: "DataDir", gateway: service_health.GatewayHealth | None) -> None:
    if gateway is None:
        return
    if gateway.model:
        out.print(f"[bold]model[/bold] {escape(gateway.model)}, {escape(gateway.state)}")
    else:
        out.print(f"[bold]model[/bold] none; serve one with: {escape(command_line('models deploy NAME', directory))}")
    if gateway.error:
        out.print(f"  {escape(gateway.error)}")


def _print_store(directory: "DataDir") -> None:
    totals = stored(directory)
    if isinstance(totals, str):
        out.print(f"[yellow]store:[/yellow] {escape(totals)}")
        return
    rows = [(name.replace("_", " "), f"{count:,}") for name, count in totals.items()]
    print_table(("stored", "rows"), rows, numbers=("rows",))


def _print_collector(health: service_health.CollectorHealth | None) -> None:
    if health is None:
        return
    out.print(f"[bold]accepted[/bold] {escape(_format_counts(health.accepted))}, since the collector's start")
    for title, counts in (
        ("rejected", health.rejected),
        ("refused requests", health.refused_requests),
        ("redacted", health.redacted),
    ):
        if counts:
            out.print(f"[bold]{title}[/bold] {escape(_format_counts(counts))}")
    latency = health.insert_latency
    if latency.get("count"):
        p50, p99 = (_format_bound(latency[name]) for name in ("p50_s", "p99_s"))
        failed = f", {health.insert_failures:,} attempts failed" if health.insert_failures else ""
        out.print(
            f"[bold]inserted[/bold] {health.inserted:,} rows, the last at {health.last_insert[:19]}Z; "
            f"a block takes {latency['mean_s']:.2f} s (half {p50}, 99 % {p99}){failed}"
        )
    waiting_bytes, age_s = int(health.spool["bytes"]), health.spool["oldest_age_s"]
    age = f", the oldest for {age_s:.0f} s" if waiting_bytes else ""
    problems = f"; ClickHouse: {health.store}" if health.store != "ok" else ""
    problems += f"; disk: {health.disk}" if health.disk != "ok" else ""
    out.print(f"[bold]spans waiting[/bold] {waiting_bytes:,} bytes{age}{escape(problems)}")
    if health.spool.get("quarantined"):
        out.print(f"[yellow]spool[/yellow] {int(health.spool['quarantined']):,} damaged ranges were set aside")


def _format_counts(counts: "Mapping[str, int]") -> str:
    parts = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return escape(f"{sum(counts.values()):,} ({parts})" if counts else "0")


def _format_bound(seconds: float | None) -> str:
    return "above 300 s" if seconds is None else f"up to {seconds:g} s"


def _print_pipelines(directory: "DataDir") -> None:
    running = pipelines(directory)
    if isinstance(running, str):
        out.print(f"[yellow]pipelines:[/yellow] {escape(running)}")
        return
    for each in running:
        description = f"{each['process']}  {each['activity']}, {each['spans']:,} spans since {each['started_at'][:19]}Z"
        out.print(f"[bold]pipeline[/bold] {escape(description)}")


def _print_captures(gateway: service_health.GatewayHealth | None) -> None:
    if gateway is not None and gateway.waiting_bytes:
        out.print(f"[bold]captures waiting[/bold] {gateway.waiting_bytes:,} bytes")


def _print_jobs(directory: "DataDir") -> None:
    jobs = open_jobs(directory)
    if isinstance(jobs, str):
        out.print(f"[yellow]jobs:[/yellow] {escape(jobs)}")
        return
    for job in jobs:
        progress = f"step {job['step']}/{job['steps_total'] or '?'}"
        description = f"{job['id']}  {job['kind']} of {job['base']}  {job['state']}  {progress}"
        out.print(f"[bold]job[/bold] {escape(description)}")
    if not jobs:
        out.print("[bold]jobs[/bold] none open")


def _print_disk(directory: "DataDir") -> None:
    """Warn of a full disk; the health of a collector elsewhere tells of its own."""
    free_bytes = shutil.disk_usage(directory.path).free
    if free_bytes < _LOW_DISK_BYTES and configured_address("collector") is None:
        out.print(f"[yellow]disk[/yellow] only {free_bytes / 2**20:,.0f} MiB are free; a full disk rejects spans")
