"""Supervise the embedded ClickHouse as a child process: start it, restart it when it ends, and stop it.

Invariant: between ``start()`` and ``stop()`` there is one child process, or a restart is due. The server restarts on
the same port with the same password, so open stores continue to work. It does not outlive this process.
"""

import logging
import subprocess
import sys
import time
from threading import Event, Thread
from typing import Final, Self

from spanloop.foundation.errors import DataDirectoryError, NotRunningError, ServiceError, SpanloopError
from spanloop.foundation.paths import DataDir, disk_error

from .lock import choose_port, server_lock

_LOG: Final = logging.getLogger(__name__)
_START_TIMEOUT_S: Final = 190.0
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
_STEADY_AFTER_S: Final = 60.0


class EmbeddedClickHouse:
    """Supervisor of one embedded server. A context manager.

    Args:
        data_dir: The data directory.
        port: HTTP port; 0 chooses one and keeps it.
        memory_cap_bytes: Memory limit of the server; default is `default_memory_cap_bytes`.
    """

    def __init__(self, data_dir: DataDir, *, port: int = 0, memory_cap_bytes: int | None = None) -> None:
        self._data_dir = data_dir
        self._port = port
        self._memory_cap_bytes = memory_cap_bytes
        self._child: subprocess.Popen[bytes] | None = None
        self._watcher: Thread | None = None
        self._stopping = Event()
        self._restarts = 0

    @property
    def restarts(self) -> int:
        """Number of attempts to restart the server."""
        return self._restarts

    @property
    def pid(self) -> int | None:
        """The child's process id; None when no child runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            AlreadyRunningError: A server runs on this data directory.
            PortInUseError: The port is in use.
            DataDirectoryError: The directory is not usable.
            ServiceError: The server ended or did not answer; the message contains its output.
        """
        self._data_dir.open()
        with server_lock(self._data_dir):
            choose_port(self._data_dir, self._port)
        self._stopping.clear()
        self._launch()
        self._watcher = Thread(target=self._watch, name="clickhouse-supervisor", daemon=True)
        self._watcher.start()

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Stop the server; kill it after ``timeout_s``, which loses no acknowledged block."""
        self._stopping.set()
        self._end_child(timeout_s)
        if self._watcher is not None:
            self._watcher.join(timeout_s)
            self._watcher = None

    def wait_until_running(self, *, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until the server that another process starts on this directory answers.

        Raises:
            NotRunningError: The server does not answer within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        while self._data_dir.running("clickhouse") is None:
            if time.monotonic() > deadline:
                raise NotRunningError(
                    f"Another process has locked the embedded ClickHouse of {self._data_dir.path}; it does not answer."
                )
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _launch(self) -> None:
        command = [sys.executable, "-m", "spanloop.embedded_clickhouse.server", "--supervised"]
        command += ["--data-dir", str(self._data_dir.path), "--port", str(self._port)]
        if self._memory_cap_bytes is not None:
            command += ["--memory-cap-bytes", str(self._memory_cap_bytes)]
        log_path = self._data_dir.logs / "clickhouse.log"
        try:
            log = log_path.open("ab")
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        with log:
            output_start = log.tell()
            # A new session: Ctrl-C reaches only the supervisor, which stops the processes in order.
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_announced(self._child, output_start)

    def _wait_until_announced(self, child: subprocess.Popen[bytes], output_start: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            running = self._data_dir.running("clickhouse")
            if running is not None and running.pid == child.pid:
                return
            code = child.poll()
            if code is not None or time.monotonic() > deadline or self._stopping.is_set():
                self._end_child(5.0)
                raise self._failed_start(code, output_start)
            time.sleep(0.02)

    def _failed_start(self, code: int | None, output_start: int) -> SpanloopError:
        with server_lock(self._data_dir):
            pass  # raises when another supervisor has started a server
        log_path = self._data_dir.logs / "clickhouse.log"
        with log_path.open("rb") as log:
            log.seek(output_start)
            output = log.read(4000).decode(errors="replace").strip()
        outcome = "did not answer in time" if code is None else f"ended with exit code {code}"
        what, _, next_step = output.partition("\n  next: ")
        error_class = DataDirectoryError if code == DataDirectoryError.exit_code else ServiceError
        return error_class(
            f"The embedded ClickHouse {outcome}: {what or 'it printed nothing'}",
            next_step=next_step or f"See {log_path}.",
        )

    def _end_child(self, timeout_s: float) -> None:
        child = self._child
        if child is None:
            return
        if child.stdin is not None:
            child.stdin.close()
        if child.poll() is None:
            child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _watch(self) -> None:
        wait_s = _FIRST_WAIT_S
        while not self._stopping.is_set():
            child = self._child
            if child is None:
                return
            started = time.monotonic()
            code = child.wait()
            if self._stopping.is_set():
                return
            self._end_child(0)
            if time.monotonic() - started > _STEADY_AFTER_S:
                wait_s = _FIRST_WAIT_S
            _LOG.warning("embedded ClickHouse ended with exit code %s; restarting it in %.1f s", code, wait_s)
            while not self._stopping.wait(wait_s):
                wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
                self._restarts += 1
                try:
                    self._launch()
                except (SpanloopError, OSError) as error:
                    _LOG.warning("%s", error)
                else:
                    break
