"""The supervisor: one child, back after every death, gone with its parent; nothing acknowledged is lost meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event, Thread

import polars as pl
import psutil
import pytest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import (
    AlreadyRunningError,
    DataDirectoryError,
    NotRunningError,
    PortInUseError,
    ServiceError,
    StoreError,
)
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address

CAP_BYTES = 600 << 20


def until(condition: Callable[[], object], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def supervised(data_dir: DataDir) -> EmbeddedClickHouse:
    return EmbeddedClickHouse(data_dir, memory_cap_bytes=CAP_BYTES)


def kill(server: EmbeddedClickHouse) -> int:
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return pid


def has_grown_to(values: list[int], count: int) -> bool:
    return len(values) >= count


def has_restarted(server: EmbeddedClickHouse, times: int) -> bool:
    return server.restarts >= times


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_runs_between_start_and_stop(data_dir: DataDir) -> None:
    server = supervised(data_dir)
    server.start()
    pid = server.pid
    assert pid is not None
    assert data_dir.running("clickhouse") == ("clickhouse", f"http://127.0.0.1:{embedded_address(data_dir).port}", pid)
    server.stop()
    assert data_dir.running("clickhouse") is None
    assert not psutil.pid_exists(pid)
    server.stop()


def test_it_can_be_started_again(data_dir: DataDir) -> None:
    for _ in range(2):
        with supervised(data_dir) as server:
            assert server.pid is not None


def test_a_killed_server_comes_back_and_open_stores_go_on(data_dir: DataDir) -> None:
    with supervised(data_dir) as server, Store.open(embedded_address(data_dir)) as store:
        dead = kill(server)
        until(lambda: server.pid not in {None, dead} and data_dir.running("clickhouse") is not None)
        assert store.query("store_counts").height > 10
        assert server.restarts == 1


@pytest.mark.slow
def test_no_acknowledged_block_is_lost_or_doubled_when_the_server_is_killed(data_dir: DataDir) -> None:
    acknowledged: list[int] = []
    done = Event()

    def insert_blocks(store: Store) -> None:
        number = 0
        while not done.is_set():
            frame = pl.DataFrame({"Timestamp": [number] * 50}).with_columns(pl.lit(f"block-{number}").alias("TraceId"))
            full = pl.DataFrame(frame.to_dicts(), schema=store.schema("otel_traces"))
            while True:
                try:
                    store.insert("otel_traces", full, token=f"block-{number}")
                except StoreError:
                    time.sleep(0.05)
                else:
                    break
            acknowledged.append(number)
            number += 1

    with supervised(data_dir) as server, Store.open(embedded_address(data_dir)) as store:
        writer = Thread(target=insert_blocks, args=(store,))
        writer.start()
        for kills in range(1, 4):
            enough = len(acknowledged) + 12
            until(partial(has_grown_to, acknowledged, enough))
            kill(server)
            until(partial(has_restarted, server, kills))
        until(partial(has_grown_to, acknowledged, len(acknowledged) + 12))
        done.set()
        writer.join()
        connection = Connection(embedded_address(data_dir))
        stored = connection.query("SELECT TraceId, count() AS n FROM otel_traces GROUP BY TraceId", doing="counting")
        connection.close()
    assert dict(stored.iter_rows()) == {f"block-{number}": 50 for number in acknowledged}


def test_a_second_supervisor_is_refused(data_dir: DataDir) -> None:
    with supervised(data_dir) as server:
        with pytest.raises(AlreadyRunningError, match=f"already runs on .* \\(process {server.pid}\\)"):
            supervised(data_dir).start()
        assert server.pid is not None


def test_a_taken_port_is_refused(data_dir: DataDir, tmp_path: Path) -> None:
    with supervised(data_dir):
        port = embedded_address(data_dir).port
        with pytest.raises(PortInUseError, match=f"Port {port}"):
            EmbeddedClickHouse(DataDir(tmp_path / "other"), port=port).start()


def test_another_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / "version.json").write_text(json.dumps({"layout": 99}))
    with pytest.raises(DataDirectoryError, match="has layout 99"):
        supervised(DataDir(tmp_path)).start()


def test_a_server_that_cannot_start_says_what_it_printed(data_dir: DataDir) -> None:
    data_dir.clickhouse.write_text("a file in the place of the data")
    with pytest.raises(ServiceError, match=r"(?s)ended with exit code 3: .* ended unexpectedly: .*File exists"):
        supervised(data_dir).start()


def test_restarts_are_repeated_until_the_server_starts(data_dir: DataDir) -> None:
    with supervised(data_dir) as server:
        good = data_dir.version_file.read_text()
        data_dir.version_file.write_text(json.dumps({"layout": 99}))
        kill(server)
        until(lambda: server.restarts >= 2)
        assert data_dir.running("clickhouse") is None
        data_dir.version_file.write_text(good)
        until(lambda: data_dir.running("clickhouse") is not None)


def test_stop_ends_restart_attempts(data_dir: DataDir) -> None:
    with supervised(data_dir) as server:
        data_dir.version_file.write_text(json.dumps({"layout": 99}))
        kill(server)
        until(lambda: server.restarts >= 1)
    restarts = server.restarts
    time.sleep(1)
    assert (server.restarts, server.pid) == (restarts, None)


def test_it_does_not_outlive_a_killed_parent(data_dir: DataDir) -> None:
    code = (
        "import sys, time; from spanloop.store import DataDir, EmbeddedClickHouse\n"
        f"server = EmbeddedClickHouse(DataDir({str(data_dir.path)!r})); server.start()\n"
        "print(server.pid, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
        until(lambda: has_ended(pid))
    assert data_dir.running("clickhouse") is None


def test_wait_until_running_times_out(data_dir: DataDir) -> None:
    with pytest.raises(NotRunningError, match="does not answer"):
        supervised(data_dir).wait_until_running(timeout_s=0.1)
