"""The processes that the ingest benchmarks measure: the collector, a server that drops everything, and two peers."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from peers import FOLDER as PEERS

from spanloop.foundation.paths import DataDir
from spanloop.store.client import Address, Connection

TIMEOUT_S: Final = 300


class Server(NamedTuple):
    """A running one."""

    process: "subprocess.Popen[bytes]"
    port: int


def stored(connection: Connection, database: str) -> int:
    """Spans that a query sees."""
    return int(connection.query(f"SELECT count() AS n FROM `{database}`.otel_traces", doing="counting")["n"].item())


def wait_for(
    condition: Callable[[], bool],
    what: str,
    server: "subprocess.Popen[bytes] | None" = None,
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Return when the condition holds; end the benchmark when it cannot any more."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if server is not None and server.poll() is not None:
            raise SystemExit(f"the server ended with exit code {server.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"after {timeout_s:.0f} s there is still no sign of {what}")
        time.sleep(0.05)


def wait_for_merges(connection: Connection, database: str) -> None:
    """Return when no merge of the database is under way: what inserts leave to be done is part of their cost."""
    sql = f"SELECT count() AS n FROM system.merges WHERE database = '{database}'"
    wait_for(lambda: connection.query(sql, doing="counting merges")["n"].item() == 0, "the end of the merges")


@contextmanager
def collector(data_dir: DataDir, *options: str, quiet: bool = True) -> Generator[Server]:
    """One collector process with its spool in the data directory."""
    command = [sys.executable, "-m", "spanloop.collector", "--data-dir", str(data_dir.path), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL if quiet else None)
    try:
        wait_for(lambda: data_dir.running("collector") is not None, "the collector's first answer", process)
        running = data_dir.running("collector")
        assert running is not None
        yield Server(process, int(running.url.rpartition(":")[2]))
    finally:
        process.terminate()
        process.wait()


@contextmanager
def dropping() -> Generator[Server]:
    """See `drop`."""
    port = free_port()
    with _running([sys.executable, str(Path(__file__).with_name("drop.py")), str(port)], port) as server:
        yield server


@contextmanager
def rotel(address: Address, batch_spans: int | None) -> Generator[Server]:
    """Rotel before the same ClickHouse, without async inserts, which it repeats when they take long.

    Args:
        address: Its database.
        batch_spans: With blocks as large as this and no compression, which serve it best here; None leaves both as they
            come (8,192 and LZ4).
    """
    port = free_port()
    (agent,) = PEERS.glob("lib/*/site-packages/rotel/rotel-agent")
    options = {
        "otlp-http-endpoint": f"127.0.0.1:{port}",
        "otlp-grpc-endpoint": f"127.0.0.1:{free_port()}",
        "exporter": "clickhouse",
        "clickhouse-exporter-endpoint": f"http://{address.host}:{address.port}",
        "clickhouse-exporter-database": address.database,
        "clickhouse-exporter-async-insert": "false",
    }
    if batch_spans is not None:
        options |= {"batch-max-size": str(batch_spans), "clickhouse-exporter-compression": "none"}
    login = {
        "ROTEL_CLICKHOUSE_EXPORTER_USER": address.user,
        "ROTEL_CLICKHOUSE_EXPORTER_PASSWORD": address.password,
    }
    command = [str(agent), "start", *(part for name, value in options.items() for part in (f"--{name}", value))]
    with _running(command, port, login) as server:
        yield server


@contextmanager
def agent_lightning() -> Generator[Server]:
    """Agent Lightning's store, which keeps spans in its memory."""
    port = free_port()
    command = [str(PEERS / "bin" / "agl"), "store", "--host", "127.0.0.1", "--port", str(port), "--log-level", "ERROR"]
    with _running(command, port, {"PYTHONWARNINGS": "ignore"}) as server:
        yield server


def rollouts(port: int, count: int) -> Sequence[tuple[str, str]]:
    """New rollouts of Agent Lightning, each with its attempt: it drops spans that name none."""
    found: list[tuple[str, str]] = []
    for number in range(count):
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/agl/rollouts",
            json={"input": {"n": number}, "mode": "train"},
            timeout=TIMEOUT_S,
        )
        answer.raise_for_status()
        rollout: dict[str, Any] = answer.json()
        found.append((rollout["rollout_id"], rollout["attempt"]["attempt_id"]))
    return found


def kept_spans(port: int) -> int:
    """Spans that Agent Lightning has."""
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/agl/statistics", timeout=TIMEOUT_S)
    statistics: dict[str, Any] = json.loads(answer.content)
    return int(statistics["total_spans"])


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def _running(command: Sequence[str], port: int, environment: dict[str, str] | None = None) -> Generator[Server]:
    process = subprocess.Popen(
        command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _listens(port), f"{Path(command[0]).name} on its port", process)
        yield Server(process, port)
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
