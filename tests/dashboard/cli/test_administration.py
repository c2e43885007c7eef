"""``spanloop backup``, ``restore``, ``copy`` and ``forget`` beside a running collector."""

import json
import threading
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV, CLICKHOUSE_URL_ENV
from spanloop.store import Store, connect
from spanloop.store.client import Address

from ...clickhouse_cluster import NAME, ClickHouseCluster
from ...collector.collector.collectors import CollectorProcess
from ...conftest import MEMORY_CAP_BYTES
from .support import Run, eventually

SPANS = 500


def post(url: str, first: int, count: int) -> None:
    """Spans of one trace each, acknowledged."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for number in range(first, first + count):
        spans.add(
            trace_id=number.to_bytes(16), span_id=number.to_bytes(8), name="chat", start_time_unix_nano=10**18 + number
        )
    headers = {"content-type": "application/x-protobuf"}
    assert httpx.post(f"{url}/v1/traces", content=request.SerializeToString(), headers=headers).status_code == 200


def count_of(store: Store) -> int:
    counts = store.query("store_counts")
    return int(dict(counts.select("table_name", "row_count").iter_rows())["otel_traces"])


@pytest.mark.slow
def test_what_was_acknowledged_is_backed_up_copied_and_restored(
    spanloop: Run, tmp_path: Path, address: Address, store: Store
) -> None:
    data_dir = DataDir(tmp_path / "data").open()
    user = f"{quote(address.user)}:{quote(address.password)}"
    url = f"http://{user}@{address.host}:{address.port}/{address.database}"
    with EmbeddedClickHouse(data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
        collector = CollectorProcess(data_dir, "")
        try:
            for at in range(0, SPANS, 50):
                post(collector.url, 1 + at, 50)
            completed = spanloop("backup", str(tmp_path / "monday"))
            assert completed.returncode == 0, completed.stderr
            assert f"backed up to {tmp_path / 'monday'}" in completed.stdout
            post(collector.url, 1 + SPANS, 1)
            assert eventually(lambda: collector.health()["inserted"] == SPANS + 1)
            for sent in (SPANS + 1, 0):
                completed = spanloop("copy", SPANLOOP_COPY_URL=url)
                assert completed.returncode == 0, completed.stderr
                row = next(line.split() for line in completed.stdout.splitlines() if line.startswith("otel_traces "))
                assert row == ["otel_traces", str(SPANS + 1), str(SPANS + 1), str(sent)]
                assert address.password not in completed.stdout + completed.stderr
            status = json.loads(spanloop("status", "--json").stdout)
            assert status["collector"]["accepted"] == {"traces": SPANS + 1}
            assert status["stored"]["spans"] == SPANS + 1
        finally:
            if collector.process.poll() is None:
                collector.kill()
    assert count_of(store) == SPANS + 1
    completed = spanloop("restore", str(tmp_path / "monday"), "--data-dir", str(tmp_path / "restored"))
    assert completed.returncode == 0, completed.stderr
    with connect(DataDir(tmp_path / "restored"), start=True) as restored:
        assert count_of(restored) == SPANS


@pytest.mark.slow
def test_a_store_moves_into_a_cluster_while_it_is_written_and_is_backed_up_there(
    spanloop: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of docs/how-to/use-a-cluster.md: a copy beside the collector, a second one after it, and then roles of
    the cluster alone."""
    data_dir = DataDir(tmp_path / "data").open()
    is_copied = threading.Event()
    acknowledged = 0

    def write(url: str) -> None:
        nonlocal acknowledged
        while not is_copied.is_set():
            post(url, 1 + acknowledged, 10)
            acknowledged += 10

    with ClickHouseCluster(tmp_path / "cluster") as cluster:
        urls = cluster.urls("moved")
        to_cluster = ("copy", "--to", urls, "--to-cluster", NAME)
        with EmbeddedClickHouse(data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
            collector = CollectorProcess(data_dir, "")
            writer = threading.Thread(target=write, args=(collector.url,))
            try:
                post(collector.url, 10**6, SPANS)
                writer.start()
                beside = spanloop(*to_cluster)
                is_copied.set()
                writer.join()
                assert beside.returncode == 0, beside.stderr
                assert acknowledged
                assert eventually(lambda: collector.health()["inserted"] == SPANS + acknowledged)
            finally:
                is_copied.set()
                collector.kill()
            after = spanloop(*to_cluster)
            assert after.returncode == 0, after.stderr
        monkeypatch.setenv(CLICKHOUSE_CLUSTER_ENV, NAME)
        monkeypatch.setenv(CLICKHOUSE_URL_ENV, urls)
        with Store(cluster.address("moved")) as store:
            assert count_of(store) == SPANS + acknowledged
        collector = CollectorProcess(data_dir, urls)
        try:
            post(collector.url, 10**7, 1)
            completed = spanloop("backup", str(tmp_path / "monday"))
            assert completed.returncode == 0, completed.stderr
        finally:
            collector.kill()
    for name in (CLICKHOUSE_CLUSTER_ENV, CLICKHOUSE_URL_ENV):
        monkeypatch.delenv(name)
    completed = spanloop("restore", str(tmp_path / "monday"), "--data-dir", str(tmp_path / "restored"))
    assert completed.returncode == 0, completed.stderr
    with connect(DataDir(tmp_path / "restored"), start=True) as restored:
        ids = restored.connection.query("SELECT count(), uniqExact(TraceId) FROM otel_traces", doing="counting").rows()
    assert ids == [(SPANS + acknowledged + 1,) * 2]


@pytest.mark.slow
def test_what_a_dead_collector_left_on_disk_is_backed_up(spanloop: Run, tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data").open()
    collector = CollectorProcess(data_dir, "")  # without ClickHouse nothing leaves the spool
    try:
        post(collector.url, 1, 20)
    finally:
        collector.kill()
    completed = spanloop("backup", str(tmp_path / "monday"))
    assert completed.returncode == 0, completed.stderr
    manifest = json.loads((tmp_path / "monday" / "manifest.json").read_text())
    assert manifest["tables"]["otel_traces"] == 20


def test_a_store_elsewhere_that_is_away_is_named_without_its_password(spanloop: Run, tmp_path: Path) -> None:
    completed = spanloop("backup", str(tmp_path / "monday"), SPANLOOP_CLICKHOUSE_URL="http://me:secret@127.0.0.1:1/db")
    assert completed.returncode == 5
    assert "127.0.0.1:1" in completed.stderr
    assert not (tmp_path / "monday").exists()
    assert "secret" not in completed.stderr
