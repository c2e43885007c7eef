"""``spanloop up``: everything on this machine, until Ctrl-C."""

import shlex
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape

from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, GATEWAY_PORT

from .console import err, out
from .models import deploy_with_progress
from .options import CollectorPortOption, DashboardPortOption, DataDirOption, GatewayPortOption, data_directory

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

_INTERRUPTED: Final = 130


def up(
    data_dir: DataDirOption = None,
    collector_port: CollectorPortOption = COLLECTOR_PORT,
    gateway_port: GatewayPortOption = GATEWAY_PORT,
    dashboard_port: DashboardPortOption = DASHBOARD_PORT,
    dashboard: Annotated[bool, typer.Option(help="Serve the web pages.")] = True,
    model: Annotated[str | None, typer.Option(help="Deploy this model (NAME@VERSION) once everything answers.")] = None,
    vllm_args: Annotated[
        str, typer.Option(help="More arguments for vLLM, as one quoted text, such as '--tool-call-parser NAME'.")
    ] = "",
) -> None:
    """Start everything here: ClickHouse, collector, gateway, scheduler and dashboard. One Ctrl-C stops it all.

    Then, in another terminal: `opentelemetry-instrument python your_app.py`

    Example: `spanloop up --model tiny`
    """
    try:
        shlex.split(vllm_args)
    except ValueError as error:
        raise typer.BadParameter(f"{vllm_args!r}: {error}", param_hint="--vllm-args") from None
    stop = _StopRequest()
    directory = data_directory(data_dir)
    if model:
        from spanloop.training.registry import Registry

        Registry(directory).get(model)  # a name that does not exist is refused before anything starts
    ports = Ports(collector_port, gateway_port, dashboard_port)
    try:
        with running_stack(
            directory, ports, _say, dashboard=dashboard, vllm_args=vllm_args, stop=stop.asked
        ) as supervisor:
            if model:
                with stop.raising():
                    deploy_with_progress(directory, model)
            _print_addresses(directory)
            err.print("[bold]up[/bold]; Ctrl-C stops everything")
            supervisor.watch(stop.asked)
            err.print("stopping")
    except KeyboardInterrupt:
        err.print("stopped before everything was up")
        raise typer.Exit(_INTERRUPTED) from None


class _StopRequest:
    """SIGINT or SIGTERM, as an event that whatever waits here looks at.

    An exception out of the handler could strike anywhere, inside a callback that swallows it too; it is raised only
    while a deployment waits for an answer.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self._may_raise = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    @contextmanager
    def raising(self) -> Generator[None]:
        """A signal inside the block is a ``KeyboardInterrupt``."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked.set()
        if self._may_raise:
            self._may_raise = False
            raise KeyboardInterrupt


def _say(line: str) -> None:
    err.print(f"[dim]·[/dim] {escape(line)}")


def _print_addresses(directory: "DataDir") -> None:
    notes = {
        "collector": "OTLP/HTTP; apps under opentelemetry-instrument find it by themselves",
        "gateway": "OpenAI-compatible: OPENAI_BASE_URL={url}/v1",
        "dashboard": "open it in a browser",
        "clickhouse": f"data in {_short(directory.path)}",
    }
    for name, note in notes.items():
        if (running := directory.running(name)) is not None:
            out.print(f"[bold]{name:10}[/bold]  {running.url:24}  [dim]{escape(note.format(url=running.url))}[/dim]")


def _short(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
