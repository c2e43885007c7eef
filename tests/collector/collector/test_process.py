"""Collector processes: a late ClickHouse, a used port, a client that disconnects, a clean stop."""
# pyright: reportPrivateUsage=false

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import NotRunningError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.listening import listen
from spanloop.store import connect
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

from .collectors import TIMEOUT_S, CollectorProcess, Launcher, trace_request


def stored_ids(connection: Connection, database: str) -> list[str]:
    exists = connection.query(f"EXISTS TABLE `{database}`.otel_traces", doing="looking")["result"].item()
    if not exists:
        return []
    return connection.query(f"SELECT SpanId AS id FROM `{database}`.otel_traces ORDER BY id", doing="reading")[
        "id"
    ].to_list()


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(0.02)


def embedded_ids(data_dir: DataDir) -> list[int]:
    """The stored span ids; none while ClickHouse is (re)starting."""
    try:
        address = embedded_address(data_dir)
        with closing(Connection(address, database="default")) as connection:
            return [int(hex_id, 16) for hex_id in stored_ids(connection, address.database)]
    except (NotRunningError, StoreError):
        return []


@contextmanager
def embedded(data_dir: DataDir) -> Generator[None]:
    with EmbeddedClickHouse(data_dir, memory_cap_bytes=1 << 30):
        yield


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_of_the_otlp_exporter_is_accepted(launch: Launcher, compression: Compression) -> None:
    memory, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    provider.get_tracer("test").start_span("chat", attributes={"text": "é" * 5000}).end()
    collector = launch("", 0, "--no-grpc")
    exporter: SpanExporter = OTLPSpanExporter(f"{collector.url}/v1/traces", compression=compression, timeout=TIMEOUT_S)
    assert exporter.export(memory.get_finished_spans()) is SpanExportResult.SUCCESS
    exporter.shutdown()
    health = collector.health()
    assert (health["accepted"], health["refused_requests"]) == ({"traces": 1}, {})
    assert collector.terminate() == 0


@pytest.mark.slow
def test_clickhouse_comes_late_goes_and_comes_back(launch: Launcher, data_dir: DataDir) -> None:
    collector: CollectorProcess = launch()

    def send(span_id: int) -> None:
        body = trace_request(span_id).SerializeToString()
        assert collector.post(body).status_code == 200

    send(1)
    wait_for(lambda: "No ClickHouse runs" in str(collector.health()["store"]), "the collector to look")
    assert collector.health()["status"] == "degraded"
    with embedded(data_dir):
        wait_for(lambda: embedded_ids(data_dir) == [1], "the span from before ClickHouse")
        send(2)
        wait_for(lambda: embedded_ids(data_dir) == [1, 2], "the second span")
        wait_for(lambda: collector.health()["status"] == "ok", "the writer to hear of it")
    send(3)
    send(4)
    wait_for(lambda: collector.health()["status"] == "degraded", "the collector to notice")
    with embedded(data_dir):
        wait_for(lambda: embedded_ids(data_dir) == [1, 2, 3, 4], "the spans from the gap")
        wait_for(lambda: collector.health()["status"] == "ok", "the collector's recovery")
        assert collector.terminate() == 0
        with connect(data_dir) as store:
            assert store.database
    assert data_dir.running("collector") is None


def test_sigterm_drains_what_was_acknowledged(
    launch: Launcher, clickhouse_url: str, connection: Connection, address: Address
) -> None:
    collector: CollectorProcess = launch(clickhouse_url)
    wait_for(lambda: collector.health()["status"] == "ok", "the store")
    body = trace_request(*range(1, 101)).SerializeToString()
    assert collector.post(body).status_code == 200
    assert collector.terminate() == 0
    assert len(stored_ids(connection, address.database)) == 100
    assert "the spool is empty" in collector.log.read_text()


def test_a_keep_alive_response_does_not_wait_for_a_tcp_ack() -> None:
    with listen("collector", "127.0.0.1", 0, "--port") as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.slow
def test_sigterm_without_clickhouse_stops_in_time_and_keeps_the_spool(
    launch: Launcher, clickhouse_url: str, connection: Connection, address: Address
) -> None:
    collector: CollectorProcess = launch()
    body = trace_request(7).SerializeToString()
    assert collector.post(body).status_code == 200
    assert collector.terminate() == 0
    assert "1 requests wait in the spool" in collector.log.read_text()
    again: CollectorProcess = launch(clickhouse_url)
    wait_for(lambda: len(stored_ids(connection, address.database)) == 1, "the span of the first process")
    assert again.terminate() == 0


def test_a_client_that_disconnects_stores_nothing(launch: Launcher) -> None:
    collector: CollectorProcess = launch()
    port = int(collector.url.rpartition(":")[2])
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1000\r\n\r\n"
    )
    for part in (b"", head[:40], head, head + b"x" * 10):
        with socket.create_connection(("127.0.0.1", port)) as sender:
            sender.sendall(part)
    wait_for(lambda: collector.health()["spool"] is not None, "an answer")
    body = trace_request(1).SerializeToString()
    assert collector.post(body).status_code == 200
    assert collector.terminate() == 0
    assert "Traceback" not in collector.log.read_text()
    assert "1 requests wait" in collector.log.read_text()


@pytest.mark.slow
def test_sigterm_while_clickhouse_hangs_stops_in_time(launch: Launcher, data_dir: DataDir) -> None:
    with embedded(data_dir):
        collector: CollectorProcess = launch()
        wait_for(lambda: collector.health()["status"] == "ok", "the store")
        clickhouse = data_dir.running("clickhouse")
        assert clickhouse is not None
        os.kill(clickhouse.pid, signal.SIGSTOP)
        try:
            body = trace_request(1).SerializeToString()
            assert collector.post(body).status_code == 200
            time.sleep(0.5)  # the insert is under way
            assert collector.terminate() == 0
        finally:
            os.kill(clickhouse.pid, signal.SIGCONT)
        assert "1 requests wait in the spool" in collector.log.read_text()
        assert data_dir.running("collector") is None
        again: CollectorProcess = launch()
        wait_for(lambda: embedded_ids(data_dir) == [1], "the span")
        assert again.url  # it listens, so its signal handlers are set
        assert again.terminate() == 0
        assert embedded_ids(data_dir) == [1], "the retry doubled it"


def run_to_end(data_dir: DataDir, port: int, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spanloop.collector", "--data-dir", str(data_dir.path), "--port", str(port)]
    command.extend(options)
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=dict(os.environ))


def test_a_used_port_is_reported_with_the_next_step(data_dir: DataDir) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = int(other.getsockname()[1])
        ended = run_to_end(data_dir, port)
    assert ended.returncode == 3
    assert f"127.0.0.1:{port}: another process does" in ended.stderr
    assert "next: Stop it" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert data_dir.running("collector") is None


def test_an_invalid_port_is_reported(data_dir: DataDir) -> None:
    ended = run_to_end(data_dir, 70000)
    assert ended.returncode == 2
    assert "70000 is not a port, expected 0 to 65535" in ended.stderr


def test_a_full_disk_is_reported_at_the_start(data_dir: DataDir) -> None:
    limit = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY));"
    code = limit + "runpy.run_module('spanloop.collector', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-B", "-c", code, "--data-dir", str(data_dir.path), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 4
    assert ended.stderr.startswith("No space is left for the data directory")
    assert "Traceback" not in ended.stderr


def test_a_second_collector_on_one_data_directory_is_refused(launch: Launcher, data_dir: DataDir) -> None:
    first: CollectorProcess = launch()
    url = first.url
    ended = run_to_end(data_dir, 0)
    assert ended.returncode == 3
    assert "in use by another process" in ended.stderr
    running = data_dir.running("collector")
    assert running is not None
    assert running.url == url
    assert first.terminate() == 0


def test_a_data_directory_of_another_layout_is_refused(data_dir: DataDir) -> None:
    data_dir.version_file.write_text('{"layout": 99, "spanloop": "9.0"}')
    ended = run_to_end(data_dir, 0)
    assert ended.returncode == 4
    assert "layout 99" in ended.stderr
    assert "Traceback" not in ended.stderr
