"""Run a complete spanloop as a context manager: ClickHouse first, then the services that need it."""

import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import AlreadyRunningError, DataDirectoryError, PortInUseError, SpanloopError
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_setting

from .services import Ports, check_ports, services
from .supervisor import ProgressCallback, Supervisor, up_lock

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

_STOP_TIMEOUT_S: Final = 12.0
"""A service stops within 10 s of the SIGTERM that the kernel sends it when its ``spanloop up`` dies."""

_POLL_S: Final = 0.1
_MIN_FREE_BYTES: Final = 64 * 2**20
"""ClickHouse needs about this much to start; with less it exits without a message."""


def check_free_space(data_dir: "DataDir") -> None:
    """Check that the disk has room to start, before anything starts.

    Raises:
        DataDirectoryError: The disk is full; the message has the free bytes.
    """
    free_bytes = shutil.disk_usage(data_dir.path).free
    if free_bytes < _MIN_FREE_BYTES:
        raise DataDirectoryError(
            f"The disk of {data_dir.path} is full: {free_bytes / 2**20:.0f} MiB are free, "
            f"and at least {_MIN_FREE_BYTES / 2**20:.0f} MiB are needed to start.",
            next_step="Free disk space, or name a directory on another disk with --data-dir.",
        )


def _await_previous_services(
    data_dir: "DataDir", names: list[str], on_progress: ProgressCallback, stop: threading.Event
) -> bool:
    """Wait until the services of a killed ``spanloop up`` have ended. The caller holds the lock.

    Returns:
        Whether any were running.
    """
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    has_waited = False
    while time.monotonic() < deadline_s:
        alive = [name for name in names if data_dir.running(name) is not None]
        if not alive:
            break
        if not has_waited:
            on_progress(f"waiting for services of an earlier spanloop to end: {', '.join(alive)}")
            has_waited = True
        _pause(stop)
    return has_waited


def _retry_while(
    action: Callable[[], object], error: type[SpanloopError], timeout_s: float, stop: threading.Event
) -> None:
    """Retry ``action``: an ending service releases its port and its lock only after its run file is gone.

    Raises:
        SpanloopError: ``action`` still raises ``error`` after ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            action()
        except error:
            if time.monotonic() >= deadline_s:
                raise
        else:
            return
        _pause(stop)


def _pause(stop: threading.Event) -> None:
    if stop.wait(_POLL_S):
        raise KeyboardInterrupt


@contextmanager
def running_stack(
    data_dir: "DataDir",
    ports: Ports,
    on_progress: ProgressCallback,
    *,
    dashboard: bool = True,
    pipeline: bool = True,
    vllm_args: str = "",
    stop: threading.Event | None = None,
) -> Generator[Supervisor]:
    """Start ClickHouse and every service in order, except those elsewhere; stop them in reverse order on exit.

    Args:
        data_dir: An opened data directory; locked inside the block.
        ports: The services' ports.
        on_progress: Receives lines for the user.
        dashboard: Whether to start the web pages (when their extra is installed).
        pipeline: Whether to start the service that converts new spans.
        vllm_args: Option of the gateway; empty leaves it to the gateway's settings.
        stop: Cancels the start when it is set.

    Raises:
        AlreadyRunningError: The data directory is in use.
        PortInUseError: A port is in use.
        DataDirectoryError: The disk is full.
        ServiceError: A service could not start.
        KeyboardInterrupt: ``stop`` was set during the start.
    """
    from spanloop.embedded_clickhouse import EmbeddedClickHouse
    from spanloop.store import connect

    stop = stop or threading.Event()
    required = services(ports, dashboard=dashboard, pipeline=pipeline, vllm_args=vllm_args)
    with ExitStack() as cleanup:
        cleanup.enter_context(up_lock(data_dir))
        names = ["clickhouse", *(service.name for service in required)]
        has_waited = _await_previous_services(data_dir, names, on_progress, stop)
        _retry_while(lambda: check_ports(required), PortInUseError, _STOP_TIMEOUT_S if has_waited else 0, stop)
        check_free_space(data_dir)
        if not read_setting(CLICKHOUSE_URL_ENV):
            on_progress("starting ClickHouse")
            _retry_while(
                lambda: cleanup.enter_context(EmbeddedClickHouse(data_dir)), AlreadyRunningError, _STOP_TIMEOUT_S, stop
            )
        with connect(data_dir):
            on_progress("the store is ready")
        supervisor = Supervisor(data_dir, required, on_progress)
        cleanup.callback(supervisor.stop)
        on_progress(f"starting {', '.join(service.name for service in required)}")
        supervisor.start(stop)
        yield supervisor
