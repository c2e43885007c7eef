"""``spanloop up``: everything on this machine, until Ctrl-C."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, GATEWAY_PORT

from .console import err, out
from .options import CollectorPortOption, DashboardPortOption, DataDirOption, GatewayPortOption, data_directory
from .services import Ports
from .stack import running_stack

if TYPE_CHECKING:
    from spanloop.store import DataDir


def up(
    data_dir: DataDirOption = None,
    collector_port: CollectorPortOption = COLLECTOR_PORT,
    gateway_port: GatewayPortOption = GATEWAY_PORT,
    dashboard_port: DashboardPortOption = DASHBOARD_PORT,
    dashboard: Annotated[bool, typer.Option(help="Serve the web pages.")] = True,
    model: Annotated[str | None, typer.Option(help="Deploy this model (NAME@VERSION) once everything answers.")] = None,
) -> None:
    """Start everything here: ClickHouse, collector, gateway, scheduler and dashboard. One Ctrl-C stops it all.

    Then, in another terminal: `opentelemetry-instrument python your_app.py`
    """
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask_to_stop)
    directory = data_directory(data_dir)
    ports = Ports(collector_port, gateway_port, dashboard_port)
    with running_stack(directory, ports, _say, dashboard=dashboard) as supervisor:
        if model:
            from spanloop.training.deploy import deploy

            _say(f"deploying {model}")
            deploy(directory, model)
        _print_addresses(directory)
        err.print("[bold]up[/bold]; Ctrl-C stops everything")
        supervisor.watch(stop)
        err.print("stopping")


def _say(line: str) -> None:
    err.print(f"[dim]·[/dim] {line}")


def _print_addresses(directory: "DataDir") -> None:
    notes = {
        "collector": "OTLP/HTTP; apps under opentelemetry-instrument find it by themselves",
        "gateway": "OpenAI-compatible: OPENAI_BASE_URL={url}/v1",
        "dashboard": "open it in a browser",
        "clickhouse": f"data in {_short(directory.path)}",
    }
    for name, note in notes.items():
        if (running := directory.running(name)) is not None:
            out.print(f"[bold]{name:10}[/bold]  {running.url:24}  [dim]{note.format(url=running.url)}[/dim]")


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
