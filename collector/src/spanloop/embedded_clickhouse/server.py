"""``python -m spanloop.embedded_clickhouse.server``: run a ClickHouse server from the wheel ``chdb-core``.

The wheel's extension module contains clickhouse-local, which can open ClickHouse's HTTP port. It is called through the
private function ``_chdb.query(sql, format, path=...)``, so the wheel's version is pinned. The server therefore has a
process of its own, and that process never imports the package ``chdb``, which would start a second engine.

Invariant: while ``run/clickhouse.json`` exists and its process is alive, the server answers. kill -9 at any moment
loses no acknowledged block.
"""

import argparse
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from threading import Thread
from typing import Any, Final

from spanloop.foundation.errors import (
    AlreadyRunningError,
    ConfigurationError,
    DataDirectoryError,
    PortInUseError,
    ServiceError,
    SpanloopError,
)
from spanloop.foundation.paths import DataDir

from .config import (
    LOOPBACK,
    MALLOC_ENV,
    MALLOC_SETTINGS,
    USER,
    adopt_secret,
    default_memory_cap_bytes,
    read_secret,
    server_log,
    write_config,
)
from .deduplication_logs import drop_unstored_blocks
from .empty_definitions import remove_empty_definitions
from .lock import choose_port, server_lock

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_START_TIMEOUT_S: Final = 180.0  # a slow disk takes a minute to read the library of half a gigabyte
_STOP_TIMEOUT_S: Final = 8.0
# The engine lives as long as the query of its local session, so this query sleeps until it is killed.
_SLEEP_QUERY: Final = "SELECT sleepEachRow(0.5) FROM system.numbers SETTINGS max_block_size = 1 FORMAT Null"
_KILL_QUERY: Final = "KILL QUERY WHERE user = '' AND query LIKE 'SELECT sleepEachRow(0.5) FROM system.numbers%' ASYNC"


class Engine:
    """The ClickHouse engine in a thread of this process, which can start only one."""

    def __init__(self, data_dir: DataDir, port: int) -> None:
        self._data_dir = data_dir
        self._port = port
        self._failure = ""
        self._output = data_dir.clickhouse_conf / "clickhouse.out"
        self._thread = Thread(target=self._run, name="clickhouse", daemon=True)

    def start(self) -> None:
        """Start the engine and wait until it answers.

        Raises:
            PortInUseError: Another process has opened the port since it was chosen.
            AlreadyRunningError: Another program has the data directory open.
            DataDirectoryError: No space is left.
            ServiceError: The engine ended for another reason, or does not answer.
        """
        _redirect_output(self._output)
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if not self._thread.is_alive():
                raise self.failure()
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"The embedded ClickHouse does not answer on port {self._port} after {_START_TIMEOUT_S:.0f} s.",
                    next_step=f"See {server_log(self._data_dir)}.",
                )
            time.sleep(0.02)

    def is_alive(self) -> bool:
        """Return whether the engine runs."""
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Stop the engine; return False after a timeout, which loses no data because inserts are atomic."""
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._query(_KILL_QUERY, timeout_s=2)
            except OSError as error:
                _print_line(f"stopping the embedded ClickHouse: {error}")
            self._thread.join(1)
        return not self._thread.is_alive()

    def _run(self) -> None:
        sql = f"SYSTEM START LISTEN HTTP; {_SLEEP_QUERY}"
        try:
            result = load_extension().query(sql, "TabSeparated", path=str(self._data_dir.clickhouse))
            self._failure = str(result.error_message())
        except BaseException as error:  # noqa: BLE001 (the caller reports it)
            self._failure = str(error)

    def _is_ready(self) -> bool:
        try:
            return self._query("SELECT 1", timeout_s=1).strip() == b"1"
        except OSError:
            return False

    def _query(self, sql: str, *, timeout_s: float) -> bytes:
        headers = {"X-ClickHouse-User": USER, "X-ClickHouse-Key": read_secret(self._data_dir)}
        request = urllib.request.Request(f"http://{LOOPBACK}:{self._port}/", sql.encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310 (our own server)
            content: bytes = response.read()
        return content

    def failure(self) -> SpanloopError:
        """Return the error that describes why the engine ended unexpectedly."""
        output = self._failure or self._output.read_text(errors="replace").split("Code: ")[-1]
        text = " ".join(output.split(", Stack trace")[0].split())[:1000] or "it printed nothing"
        if "Address already in use" in text:
            return PortInUseError(
                f"Port {self._port} on {LOOPBACK} was taken by another process while the embedded ClickHouse started.",
                next_step="Start it again, or use another port.",
            )
        if "Cannot lock file" in text:
            return AlreadyRunningError(
                f"Another program has {self._data_dir.clickhouse} open: {text}", next_step="Stop that program."
            )
        if "No space left" in text or "NOT_ENOUGH_SPACE" in text:
            return DataDirectoryError(
                f"No space is left for the embedded ClickHouse in {self._data_dir.path}: {text}",
                next_step="Free disk space, or name a directory on another disk with --data-dir.",
            )
        return ServiceError(
            f"The embedded ClickHouse on {self._data_dir.path} ended unexpectedly: {text}",
            next_step=f"See {server_log(self._data_dir)}.",
        )


def load_extension() -> Any:
    """Load the wheel's extension module without its package. ConfigurationError: the wheel is not installed."""
    package = importlib.util.find_spec("chdb")
    folders = [Path(folder) for folder in (package.submodule_search_locations or [])] if package else []
    library = next((file for folder in folders for file in [folder / "_chdb.abi3.so"] if file.exists()), None)
    if library is None:
        raise ConfigurationError(
            "The embedded ClickHouse needs the wheel chdb-core, which is not installed.",
            next_step="pip install '/path/to/spanloop[server]', or set SPANLOOP_CLICKHOUSE_URL to your own server.",
        )
    loader = importlib.machinery.ExtensionFileLoader("_chdb", str(library))
    spec = importlib.util.spec_from_file_location("_chdb", library, loader=loader)
    if spec is None:
        raise ServiceError(f"{library} cannot be loaded.", next_step="Reinstall spanloop[server].")
    with chdir(library.parent):
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


def serve(
    data_dir: DataDir,
    *,
    port: int,
    memory_cap_bytes: int,
    supervised: bool = False,
    host: str = LOOPBACK,
    password_file: Path | None = None,
) -> None:
    """Run the server in this process until SIGTERM or SIGINT.

    Args:
        data_dir: The data directory.
        port: HTTP port; 0 chooses one.
        memory_cap_bytes: Memory limit of the server; a query above it fails.
        supervised: Also stop at the end of standard input, which ends with the parent process.
        host: Address to listen on, beside the loopback.
        password_file: Holds the password; None keeps the one of the data directory, or makes one.

    Raises:
        SpanloopError: The server could not start, or ended unexpectedly.
    """
    # Blocked in all threads from here on and received below, so that the engine's own handlers never run.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    if supervised:
        Thread(target=_stop_at_end_of_input, name="parent", daemon=True).start()
    data_dir.open()
    with server_lock(data_dir):
        chosen = choose_port(data_dir, port, host)
        if password_file is not None:
            adopt_secret(data_dir, password_file)
        write_config(data_dir, port=chosen, memory_cap_bytes=memory_cap_bytes, host=host)
        _raise_file_limit()
        for path in remove_empty_definitions(data_dir):
            _print_line(
                f"Removed the empty definition {path} of a table without rows; the next migration recreates it."
            )
        if unstored := drop_unstored_blocks(data_dir):
            _print_line(
                f"The killed server had noted {unstored} blocks that it did not store; they are accepted again."
            )
        os.chdir(data_dir.clickhouse_conf)  # the engine reads ./config.xml
        os.environ.setdefault(MALLOC_ENV, MALLOC_SETTINGS)
        engine = Engine(data_dir, chosen)
        engine.start()
        with data_dir.announce("clickhouse", f"http://{LOOPBACK}:{chosen}"):
            listens = "" if host == LOOPBACK else f", and listens on {host}"
            _print_line(f"ClickHouse answers on http://{LOOPBACK}:{chosen}{listens}")
            while engine.is_alive() and not _received_stop_signal(timeout_s=0.5):
                pass
        if not engine.is_alive():
            raise engine.failure()
        engine.stop()


def _received_stop_signal(*, timeout_s: float) -> bool:
    # After SIGSTOP or a laptop's sleep, the call can return a result without a signal.
    received = signal.sigtimedwait(_STOP_SIGNALS, timeout_s)
    return received is not None and received.si_signo in _STOP_SIGNALS


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _redirect_output(path: Path) -> None:
    """Redirect the engine's standard error to a file; Python's ``sys.stderr`` stays unchanged."""
    sys.stderr.flush()
    sys.stderr = open(os.dup(2), "w", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115 (for the process's life)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _stop_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--supervised", action="store_true")
    parser.add_argument("--data-dir")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--memory-cap-bytes", type=int)
    options, others = parser.parse_known_args(arguments)
    try:
        if options.supervised and not others:
            # The child of a supervisor needs no settings, whose classes take 0.2 s and 13 MB.
            serve(
                DataDir(options.data_dir),
                port=options.port,
                memory_cap_bytes=options.memory_cap_bytes or default_memory_cap_bytes(),
                supervised=True,
            )
        else:
            _serve_role(arguments)
    except SpanloopError as error:
        _print_line(str(error))
        return error.exit_code
    return 0


def _serve_role(arguments: Sequence[str] | None) -> None:
    from spanloop.foundation.settings.roles import ClickhouseSettings  # noqa: PLC0415
    from spanloop.foundation.settings.sources import read_process  # noqa: PLC0415

    process = read_process(ClickhouseSettings, arguments)
    settings = process.settings
    serve(
        DataDir(process.data_dir),
        port=settings.port,
        memory_cap_bytes=settings.memory_cap_bytes or default_memory_cap_bytes(),
        host=settings.host,
        password_file=settings.password_file,
    )


if __name__ == "__main__":
    code = main()
    # The extension cannot be unloaded: an ordinary exit would run its static destructors under its own threads.
    os._exit(code)
