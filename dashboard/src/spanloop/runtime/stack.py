"""A whole spanloop as a context manager: ClickHouse first, then the services around it."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import AlreadyRunningError, DataDirectoryError, PortInUseError, SpanloopError

from .services import Ports, check_ports, services
from .supervisor import Say, Supervisor, only_one_up

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

_ENDING_TIMEOUT_S: Final = 12.0
"""A service stops within 10 s of the SIGTERM that the kernel sends it when its ``up`` dies."""

_POLL_S: Final = 0.1
_LEAST_FREE_BYTES: Final = 64 * 2**20
"""ClickHouse needs about this much to start; with less it ends without a word."""


def check_room(data_dir: "DataDir") -> None:
    """Refuse before anything starts when the disk is full.

    Raises:
        DataDirectoryError: Says how much is free.
    """
    free_bytes = shutil.disk_usage(data_dir.path).free
    if free_bytes < _LEAST_FREE_BYTES:
        raise DataDirectoryError(
            f"The disk of {data_dir.path} is full: {free_bytes / 2**20:.0f} MiB are free, "
            f"and at least {_LEAST_FREE_BYTES / 2**20:.0f} MiB are needed to start.",
            next_step="Free disk space, or name a directory on another disk with --data-dir.",
        )


def _await_predecessors(data_dir: "DataDir", names: list[str], say: Say, stop: threading.Event) -> bool:
    """Let the services of an ``up`` that was killed end; whoever holds the lock is the only one who may run them.

    Returns:
        Whether there were any.
    """
    deadline_s = time.monotonic() + _ENDING_TIMEOUT_S
    has_waited = False
    while time.monotonic() < deadline_s:
        alive = [name for name in names if data_dir.running(name) is not None]
        if not alive:
            break
        if not has_waited:
            say(f"waiting for what an earlier spanloop left to end: {', '.join(alive)}")
            has_waited = True
        _pause(stop)
    return has_waited


def _insist(
    action: Callable[[], object], refusal: type[SpanloopError], timeout_s: float, stop: threading.Event
) -> None:
    """Try again while it is refused: an ending service gives its port or lock back only after its run file is gone.

    Raises:
        SpanloopError: The refusal, when it still stands after ``timeout_s``.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            action()
        except refusal:
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
    say: Say,
    *,
    dashboard: bool = True,
    pipeline: bool = True,
    vllm_args: str = "",
    stop: threading.Event | None = None,
) -> Generator[Supervisor]:
    """Everything that makes a spanloop, started in order and stopped in the opposite one.

    Args:
        data_dir: An opened data directory; locked meanwhile.
        ports: Where to listen.
        say: Receives progress lines.
        dashboard: Whether to start the web pages (when their extra is installed).
        pipeline: Whether spans are converted as they come.
        vllm_args: More arguments for vLLM, as a shell would split them.
        stop: Breaks off the start when it is set.

    Raises:
        AlreadyRunningError: The data directory is in use.
        PortInUseError: A port is taken.
        DataDirectoryError: The disk is full.
        ServiceError: A service could not start.
        KeyboardInterrupt: ``stop`` was set while it started.
    """
    from spanloop.embedded_clickhouse import EmbeddedClickHouse
    from spanloop.store import connect

    stop = stop or threading.Event()
    wanted = services(ports, dashboard=dashboard, pipeline=pipeline, vllm_args=vllm_args)
    with ExitStack() as cleanup:
        cleanup.enter_context(only_one_up(data_dir))
        names = ["clickhouse", *(service.name for service in wanted)]
        has_waited = _await_predecessors(data_dir, names, say, stop)
        _insist(lambda: check_ports(wanted), PortInUseError, _ENDING_TIMEOUT_S if has_waited else 0, stop)
        check_room(data_dir)
        if not os.environ.get(CLICKHOUSE_URL_ENV):
            say("starting ClickHouse")
            _insist(
                lambda: cleanup.enter_context(EmbeddedClickHouse(data_dir)),
                AlreadyRunningError,
                _ENDING_TIMEOUT_S,
                stop,
            )
        with connect(data_dir):
            say("the store is ready")
        supervisor = Supervisor(data_dir, wanted, say)
        cleanup.callback(supervisor.stop)
        say(f"starting {', '.join(service.name for service in wanted)}")
        supervisor.start(stop)
        yield supervisor
