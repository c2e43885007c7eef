"""The pipeline as a service: spans become transitions while nobody looks, across an outage of the store."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import polars as pl

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import Store, connect


def eventually(check: Callable[[], bool], timeout_s: float = 60) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if check():
            return True
        time.sleep(0.1)
    return False


def insert_call(store: Store, number: int) -> None:
    """One model call, a trace of its own."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": f"r{number}",
        "gen_ai.input.messages": f'[{{"role": "user", "parts": [{{"type": "text", "content": "q{number}"}}]}}]',
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]',
    }
    row = {
        "Timestamp": 1_760_000_000_000_000_000 + number,
        "TraceId": f"{number:032x}",
        "SpanId": f"{number:016x}",
        "SpanName": "openai.chat",
        "SpanAttributes": attributes,
        "Duration": 1_000_000,
        "StatusCode": "Unset",
    }
    schema = store.schema("otel_traces")
    store.insert("otel_traces", pl.DataFrame([row], schema=schema))


def test_it_converts_what_arrives_and_survives_an_outage(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data").open()
    options = ["--data-dir", str(data_dir.path), "--interval-s", "0.2", "--status-port", "0"]
    command = [sys.executable, "-m", "spanloop.pipeline", *options]

    def episodes() -> int:
        with connect(data_dir) as store:
            return int(store.query("store_counts").filter(pl.col("table_name") == "episodes").item(0, "row_count"))

    def ask(path: str) -> str:
        running = data_dir.running("pipeline")
        assert running is not None
        return httpx.get(f"{running.url}{path}", timeout=60).text

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            with EmbeddedClickHouse(data_dir), connect(data_dir) as store:
                insert_call(store, 1)
                assert eventually(lambda: episodes() == 1)
                assert eventually(lambda: "spanloop_pipeline_spans_total 1\n" in ask("/metrics"))
                assert "\nspanloop_pipeline_lag_spans 0\n" in ask("/metrics")
            assert service.poll() is None
            assert eventually(lambda: json.loads(ask("/healthz"))["status"] == "degraded")
            assert "\nspanloop_pipeline_store_up 0\n" in ask("/metrics")
            with EmbeddedClickHouse(data_dir), connect(data_dir) as store:
                insert_call(store, 2)
                assert eventually(lambda: episodes() >= 2)
                assert eventually(lambda: json.loads(ask("/healthz"))["status"] == "ok")
        finally:
            service.send_signal(signal.SIGTERM)
        _, stderr = service.communicate(timeout=60)
    assert service.returncode == 0
    assert "1 transitions" in stderr
    assert "Traceback" not in stderr
