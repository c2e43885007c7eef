"""``spanloop up``: run every service on this machine until Ctrl-C."""

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

from spanloop.runtime.sample import DIRECTORY, restore_sample
from spanloop.runtime.services import Ports
from spanloop.runtime.stack import running_stack
from spanloop.semconv.environment import COLLECTOR_PORT, DASHBOARD_PORT, GATEWAY_PORT

from ..console import err, out
from ..learning.models import deploy_with_progress
from ..options import ConfigOption, DataDirOption, LogFormatOption, configured_directory, data_directory, use_log_format

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

_INTERRUPTED: Final = 130


def up(
    data_dir: DataDirOption = None,
    collector_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the collector (OTLP/HTTP).", show_default=f"{COLLECTOR_PORT}"),
    ] = None,
    gateway_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the OpenAI-compatible API.", show_default=f"{GATEWAY_PORT}"),
    ] = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of the dashboard's web pages.", show_default=f"{DASHBOARD_PORT}"),
    ] = None,
    dashboard: Annotated[bool, typer.Option(help="Serve the web pages.")] = True,
    model: Annotated[str | None, typer.Option(help="Deploy this model (NAME@VERSION) after the start.")] = None,
    vllm_args: Annotated[
        str, typer.Option(help="Further arguments for vLLM in one quoted string, such as '--tool-call-parser NAME'.")
    ] = "",
    sample: Annotated[
        bool, typer.Option("--sample", help="Serve recordings that come with spanloop, from ~/.spanloop-sample.")
    ] = False,
    config: ConfigOption = None,
    log_format: LogFormatOption = None,
) -> None:
    """Start ClickHouse, collector, pipeline, gateway, scheduler and dashboard; Ctrl-C stops them all.

    Options in `[serve.collector]`, `[serve.gateway]` and so on of `spanloop.toml` apply, as for `spanloop serve`. What
    its section `[services]` names runs elsewhere, and is not started.

    Then run an app in another terminal: `opentelemetry-instrument python your_app.py`

    Example: `spanloop up --model tiny`, or `spanloop up --sample` to look around first
    """
    try:
        shlex.split(vllm_args)
    except ValueError as error:
        raise typer.BadParameter(f"{vllm_args!r}: {error}", param_hint="--vllm-args") from None
    use_log_format(log_format)
    stop = _StopRequest()
    if sample:
        data_dir = data_dir or Path.home() / DIRECTORY
        if restore_sample(configured_directory(data_dir, config)):
            _print_progress("recordings of a tiny demo restored")
    directory = data_directory(data_dir, config)
    if model:
        from spanloop.training.models.registry import Registry

        Registry(directory).get(model)  # raises for an unknown name, before anything starts
    ports = Ports.configured(directory.path, collector_port, gateway_port, dashboard_port)
    try:
        with running_stack(
            directory, ports, _print_progress, dashboard=dashboard, vllm_args=vllm_args, stop=stop.requested
        ) as supervisor:
            if model:
                with stop.raising():
                    deploy_with_progress(directory, model)
            _print_addresses(directory)
            err.print("[bold]up[/bold]; Ctrl-C stops everything")
            supervisor.watch(stop.requested)
            err.print("stopping")
    except KeyboardInterrupt:
        err.print("stopped before everything was up")
        raise typer.Exit(_INTERRUPTED) from None


class _StopRequest:
    """Turns SIGINT and SIGTERM into an event that every waiting loop checks.

    The handler raises only while a deployment waits for its response: an exception from a signal handler can occur at
    any line, even inside a callback that swallows it.
    """

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._may_raise = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle_signal)

    @contextmanager
    def raising(self) -> Generator[None]:
        """Raise ``KeyboardInterrupt`` when a signal arrives inside the block."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False

    def _handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.requested.set()
        if self._may_raise:
            self._may_raise = False
            raise KeyboardInterrupt


def _print_progress(line: str) -> None:
    err.print(f"[dim]·[/dim] {escape(line)}")


def _print_addresses(directory: "DataDir") -> None:
    notes = {
        "collector": "OTLP/HTTP; apps under opentelemetry-instrument find it automatically",
        "gateway": "OpenAI-compatible: OPENAI_BASE_URL={url}/v1",
        "dashboard": "open it in a browser",
        "clickhouse": f"data in {_shorten_home(directory.path)}",
    }
    for name, note in notes.items():
        if (service := directory.find(name)) is not None:
            out.print(f"[bold]{name:10}[/bold]  {service.url:24}  [dim]{escape(note.format(url=service.url))}[/dim]")


def _shorten_home(path: Path) -> str:
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)
