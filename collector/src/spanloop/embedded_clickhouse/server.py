"""``python -m spanloop.embedded_clickhouse.server``: a real ClickHouse server out of the wheel ``chdb-core``.

The wheel's extension module contains clickhouse-local, which can open ClickHouse's HTTP port. It is reached by the
private function ``_chdb.query(sql, format, path=...)``, so the wheel's version is pinned. Two things follow: the server
has a process of its own, and that process never imports the package ``chdb``, which would start a second engine.

Invariant: while ``run/clickhouse.json`` exists and its process lives, the server answers. kill -9 at any moment loses
no acknowledged block.
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

from spanloop.datadir import DataDir
from spanloop.semconv.errors import (
    AlreadyRunningError,
    ConfigurationError,
    DataDirectoryError,
    PortInUseError,
    ServiceError,
    SpanloopError,
)

from .config import MALLOC_ENV, MALLOC_SETTINGS, USER, default_memory_cap_bytes, read_secret, server_log, write_config
from .empty_definitions import remove_empty_definitions
from .lock import HOST, claim_port, server_lock

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_START_TIMEOUT_S: Final = 180.0  # its library is half a gigabyte, which a slow disk takes a minute to read
_STOP_TIMEOUT_S: Final = 8.0
# The engine lives as long as its local session's query; ours sleeps until it is killed.
_SLEEP: Final = "SELECT sleepEachRow(0.5) FROM system.numbers SETTINGS max_block_size = 1 FORMAT Null"
_WAKE: Final = "KILL QUERY WHERE user = '' AND query LIKE 'SELECT sleepEachRow(0.5) FROM system.numbers%' ASYNC"


class Engine:
    """The engine in a thread of this process. One for each process, ever.

    Args:
        data_dir: Its data and configuration.
        port: HTTP port on the loopback, free a moment ago.
    """

    def __init__(self, data_dir: DataDir, port: int) -> None:
        self._data_dir = data_dir
        self._port = port
        self._failure = ""
        self._output = data_dir.clickhouse_conf / "clickhouse.out"
        self._thread = Thread(target=self._run, name="clickhouse", daemon=True)

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            PortInUseError: Somebody took the port in between.
            AlreadyRunningError: Another program has the data directory open.
            DataDirectoryError: No space left.
            ServiceError: It ended for another reason, or does not answer.
        """
        _divert_output(self._output)
        self._thread.start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if not self._thread.is_alive():
                raise self.failure()
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"The embedded ClickHouse does not answer on {HOST}:{self._port} after {_START_TIMEOUT_S:.0f} s.",
                    next_step=f"See {server_log(self._data_dir)}.",
                )
            time.sleep(0.02)

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def stop(self) -> bool:
        """End it; False when it did not end in time, which loses nothing, as inserts are atomic."""
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            try:
                self._ask(_WAKE, timeout_s=2)
            except OSError as error:
                _say(f"stopping the embedded ClickHouse: {error}")
            self._thread.join(1)
        return not self._thread.is_alive()

    def _run(self) -> None:
        sql = f"SYSTEM START LISTEN HTTP; {_SLEEP}"
        try:
            result = load_extension().query(sql, "TabSeparated", path=str(self._data_dir.clickhouse))
            self._failure = str(result.error_message())
        except BaseException as error:  # noqa: BLE001 (the thread's end is the caller's to report)
            self._failure = str(error)

    def _answers(self) -> bool:
        try:
            return self._ask("SELECT 1", timeout_s=1).strip() == b"1"
        except OSError:
            return False

    def _ask(self, sql: str, *, timeout_s: float) -> bytes:
        headers = {"X-ClickHouse-User": USER, "X-ClickHouse-Key": read_secret(self._data_dir)}
        request = urllib.request.Request(f"http://{HOST}:{self._port}/", sql.encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310 (our own server)
            content: bytes = answer.read()
        return content

    def failure(self) -> SpanloopError:
        """Why it ended without being asked to."""
        said = self._failure or self._output.read_text(errors="replace").split("Code: ")[-1]
        text = " ".join(said.split(", Stack trace")[0].split())[:1000] or "it said nothing"
        if "Address already in use" in text:
            return PortInUseError(
                f"Port {self._port} on {HOST} was taken while the embedded ClickHouse started.",
                next_step="Start it again, or give it another port.",
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
            f"The embedded ClickHouse on {self._data_dir.path} ended by itself: {text}",
            next_step=f"See {server_log(self._data_dir)}.",
        )


def load_extension() -> Any:
    """The wheel's extension module, without its package.

    Raises:
        ConfigurationError: The wheel is not installed.
    """
    package = importlib.util.find_spec("chdb")
    folders = [Path(folder) for folder in (package.submodule_search_locations or [])] if package else []
    library = next((file for folder in folders for file in [folder / "_chdb.abi3.so"] if file.exists()), None)
    if library is None:
        raise ConfigurationError(
            "The embedded ClickHouse needs the wheel chdb-core, which is not installed.",
            next_step="pip install 'spanloop[server]', or set SPANLOOP_CLICKHOUSE_URL to a server of your own.",
        )
    loader = importlib.machinery.ExtensionFileLoader("_chdb", str(library))
    spec = importlib.util.spec_from_file_location("_chdb", library, loader=loader)
    if spec is None:
        raise ServiceError(f"{library} cannot be loaded.", next_step="Reinstall spanloop[server].")
    with chdir(library.parent):
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    return module


def serve(data_dir: DataDir, *, port: int, memory_cap_bytes: int, supervised: bool = False) -> None:
    """Run the server in this process until SIGTERM or SIGINT.

    Args:
        data_dir: The data directory.
        port: HTTP port on the loopback; 0 picks one.
        memory_cap_bytes: What the server may use; a query above it fails, the server does not.
        supervised: Also stop when standard input ends, as it does with the parent.

    Raises:
        SpanloopError: It could not start, or ended by itself.
    """
    # Blocked in every thread from here on, and fetched below: the engine's own handlers never see them.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    if supervised:
        Thread(target=_stop_at_end_of_input, name="parent", daemon=True).start()
    data_dir.open()
    with server_lock(data_dir):
        chosen = claim_port(data_dir, port)
        write_config(data_dir, port=chosen, memory_cap_bytes=memory_cap_bytes)
        _raise_file_limit()
        for path in remove_empty_definitions(data_dir):
            _say(f"Removed the empty definition {path}, which held no rows: the next migration makes the table anew.")
        os.chdir(data_dir.clickhouse_conf)  # the engine reads ./config.xml
        os.environ.setdefault(MALLOC_ENV, MALLOC_SETTINGS)
        engine = Engine(data_dir, chosen)
        engine.start()
        with data_dir.announce("clickhouse", f"http://{HOST}:{chosen}"):
            _say(f"ClickHouse answers on http://{HOST}:{chosen}")
            while engine.is_alive() and not _asked_to_stop(timeout_s=0.5):
                pass
        if not engine.is_alive():
            raise engine.failure()
        engine.stop()


def _asked_to_stop(*, timeout_s: float) -> bool:
    # A process that was stopped (SIGSTOP, a laptop's sleep) for longer gets an answer without a signal in it.
    arrived = signal.sigtimedwait(_STOP_SIGNALS, timeout_s)
    return arrived is not None and arrived.si_signo in _STOP_SIGNALS


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _divert_output(path: Path) -> None:
    """Send what the engine prints to a file of its own; Python's standard error stays where it was."""
    sys.stderr.flush()
    sys.stderr = open(os.dup(2), "w", buffering=1, encoding="utf-8")  # noqa: PTH123, SIM115 (for the process's life)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _stop_at_end_of_input() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the answer is the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spanloop.embedded_clickhouse.server", description="Serve the embedded ClickHouse."
    )
    parser.add_argument("--data-dir", help="default: $SPANLOOP_DATA_DIR, else ~/.spanloop")
    parser.add_argument("--port", type=int, default=0, help="HTTP port on 127.0.0.1; 0 picks one (default)")
    parser.add_argument("--memory-cap-bytes", type=int, default=default_memory_cap_bytes())
    parser.add_argument(
        "--supervised", action="store_true", help="stop when standard input ends, as it does with the parent"
    )
    options = parser.parse_args(arguments)
    try:
        serve(
            DataDir(options.data_dir),
            port=options.port,
            memory_cap_bytes=options.memory_cap_bytes,
            supervised=options.supervised,
        )
    except SpanloopError as error:
        _say(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main()
    # The extension cannot be unloaded: an ordinary exit would run its static destructors under its own threads.
    os._exit(code)
