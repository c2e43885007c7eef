"""The embedded ClickHouse as a child of this process: started, watched, started again when it dies, stopped.

Invariant: between ``start()`` and ``stop()`` there is one child or a next attempt is due; it comes back on the same
port with the same password, so open stores go on working. It does not outlive this process.
"""

import logging
import subprocess
import sys
import time
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

from spanloop.datadir import DataDir, disk_error
from spanloop.semconv.errors import DataDirectoryError, NotRunningError, ServiceError, SpanloopError

from .lock import claim_port, server_lock

_LOG: Final = logging.getLogger(__name__)
_START_TIMEOUT_S: Final = 190.0
_FIRST_WAIT_S: Final = 0.2
_LONGEST_WAIT_S: Final = 10.0
_STEADY_AFTER_S: Final = 60.0


class EmbeddedClickHouse:
    """Supervisor of one embedded server. A context manager.

    Args:
        data_dir: The data directory.
        port: HTTP port; 0 picks one and keeps it.
        memory_cap_bytes: What the server may use; default is the server's own default.
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
        """How often it was tried to start a dead server again."""
        return self._restarts

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is a child."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            AlreadyRunningError: One runs on this data directory.
            PortInUseError: The port is taken.
            DataDirectoryError: The directory is not usable.
            ServiceError: The server ended or did not answer; the message holds what it printed.
        """
        self._data_dir.open()
        with server_lock(self._data_dir):
            claim_port(self._data_dir, self._port)
        self._stopping.clear()
        self._launch()
        self._watcher = Thread(target=self._watch, name="clickhouse-supervisor", daemon=True)
        self._watcher.start()

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Stop the server; after ``timeout_s`` by force, which loses no acknowledged block."""
        self._stopping.set()
        self._end_child(timeout_s)
        if self._watcher is not None:
            self._watcher.join(timeout_s)
            self._watcher = None

    def wait_for_other(self, *, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Wait until the server that another process is starting on this directory answers.

        Raises:
            NotRunningError: It does not.
        """
        deadline = time.monotonic() + timeout_s
        while self._data_dir.running("clickhouse") is None:
            if time.monotonic() > deadline:
                raise NotRunningError(
                    f"Another process holds the embedded ClickHouse of {self._data_dir.path} and it does not answer."
                )
            time.sleep(0.05)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
            printed_from = log.tell()
            # A session of its own: Ctrl-C reaches the supervisor, which stops things in order.
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self._wait_until_announced(self._child, printed_from)

    def _wait_until_announced(self, child: subprocess.Popen[bytes], printed_from: int) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            running = self._data_dir.running("clickhouse")
            if running is not None and running.pid == child.pid:
                return
            code = child.poll()
            if code is not None or time.monotonic() > deadline or self._stopping.is_set():
                self._end_child(5.0)
                raise self._failed_start(code, printed_from)
            time.sleep(0.02)

    def _failed_start(self, code: int | None, printed_from: int) -> SpanloopError:
        with server_lock(self._data_dir):
            pass  # raises when another supervisor was faster
        log_path = self._data_dir.logs / "clickhouse.log"
        with log_path.open("rb") as log:
            log.seek(printed_from)
            printed = log.read(4000).decode(errors="replace").strip()
        how = "did not answer in time" if code is None else f"ended with exit code {code}"
        what, _, next_step = printed.partition("\n  next: ")
        kind = DataDirectoryError if code == DataDirectoryError.exit_code else ServiceError
        return kind(
            f"The embedded ClickHouse {how}: {what or 'it printed nothing'}", next_step=next_step or f"See {log_path}."
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
            _LOG.warning("embedded ClickHouse ended with exit code %s; starting it again in %.1f s", code, wait_s)
            while not self._stopping.wait(wait_s):
                wait_s = min(_LONGEST_WAIT_S, wait_s * 2)
                self._restarts += 1
                try:
                    self._launch()
                except (SpanloopError, OSError) as error:
                    _LOG.warning("%s", error)
                else:
                    break
