"""SIGTERM during work ends every role in order: status 0, within its limit, and nothing that was accepted is lost."""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.pipeline.watermark import load
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONVERT_MEMORY_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import LeaderRow
from spanloop.training.jobs.leadership import SCHEDULER
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec

from ...collector.collector.collectors import CollectorProcess, trace_request
from ...gateway.support import Process, StandIn, serving, write_model
from ...ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TIMEOUT_S = 240.0
CALL_COUNT = 2_000
CALLS = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, SpanAttributes, Duration)
SELECT fromUnixTimestamp64Nano(toInt64(1760000000000000000 + number)), leftPad(hex(number), 32, '0'),
    leftPad(hex(number), 16, '0'), 'chat', map(
        'gen_ai.operation.name', 'chat', 'gen_ai.request.model', 'm',
        'gen_ai.input.messages',
            concat('[{"role": "user", "parts": [{"type": "text", "content": "', repeat('q', 2000), '"}]}]'),
        'gen_ai.output.messages', '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]'), 1000000
FROM numbers({count:UInt64})
"""
JOB = """
import signal, sys, time
from spanloop.foundation.paths import DataDir

folder = DataDir(sys.argv[2]).jobs / sys.argv[4]
begins = folder / "begins"
begins.write_text((begins.read_text() if begins.exists() else "") + "x")
time.sleep(0 if (folder / "may-end").exists() else 600)
"""
"""A job that runs until a file lets its next attempt end at once."""


def wait_until(holds: Callable[[], object]) -> None:
    give_up_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < give_up_s, "it did not happen"
        time.sleep(0.02)


class Role:
    """One role as a process."""

    def __init__(self, data_dir: DataDir, module: str, *options: str) -> None:
        self.log = data_dir.path / f"{module}-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", module, "--data-dir", str(data_dir.path), *options]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def terminate(self) -> float:
        """Stop it in order; return how long that took, in seconds."""
        return terminate(self.process, self.log)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def terminate(process: "subprocess.Popen[bytes]", log: Path) -> float:
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
    return time.monotonic() - began_s


def show(role: str, took_s: float, limit_s: float, **counts: object) -> None:
    """Print one line of the ledger, and check the limit."""
    print(f"{role}: ended in {took_s:.1f} s of {limit_s:.0f} s, {counts}")  # noqa: T201 - the ledger
    assert took_s < limit_s


def spans_in(connection: Connection) -> Sequence[str]:
    return [str(span) for span in connection.query("SELECT SpanId FROM otel_traces", doing="reading")["SpanId"]]


def test_the_collector_answers_what_it_accepted_and_stores_it_once(
    store: Store, address: Address, connection: Connection, data_dir: DataDir
) -> None:
    assert store.database == address.database
    url = clickhouse_url(address)
    collector = CollectorProcess(data_dir, url, 0, "--no-grpc")
    target = collector.url
    acknowledged: list[str] = []
    begin = threading.Event()

    def send(first: int) -> None:
        with httpx.Client(timeout=60) as client:
            for number in range(first, first + 100_000):
                body = trace_request(number, trace_id=number).SerializeToString()
                try:
                    answer = client.post(
                        f"{target}/v1/traces", content=body, headers={"content-type": "application/x-protobuf"}
                    )
                except httpx.TransportError:
                    return
                if answer.status_code == 200:
                    acknowledged.append(f"{number:016x}")
                begin.set()

    threads = [threading.Thread(target=send, args=(1 + thread * 1_000_000,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    begin.wait(TIMEOUT_S)
    time.sleep(1)
    took_s = terminate(collector.process, collector.log)
    for thread in threads:
        thread.join()
    second = CollectorProcess(data_dir, url, 0, "--no-grpc")
    try:
        wait_until(lambda: second.health()["spool"]["records"] == 0)  # type: ignore[index]
    finally:
        second.kill()
    stored = spans_in(connection)
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    show("collector", took_s, 10, acknowledged=len(acknowledged), stored=len(stored), lost=0, doubled=0)


def test_the_gateway_ends_running_answers_and_sends_new_requests_away(data_dir: DataDir, tmp_path: Path) -> None:
    stand_in = StandIn(write_model(tmp_path / "m", 1), token_delay_s=1.0)
    with serving(stand_in.app()) as upstream:
        gateway = Process(data_dir, "--upstream", upstream, "--grace-s", "30")
        wait_until(lambda: gateway.health()["engine"] == "serving")
        chat, body = f"{gateway.url}/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}
        with httpx.Client(timeout=60) as client, client.stream("POST", chat, json=body | {"stream": True}) as answer:
            parts = answer.iter_raw()
            received = next(parts)
            gateway.process.send_signal(signal.SIGTERM)
            wait_until(lambda: gateway.health()["status"] == "draining")
            refused = httpx.post(chat, json=body, timeout=60)
            received += b"".join(parts)
        took_s = terminate(gateway.process, gateway.log)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert b'"finish_reason": "stop"' in received or b'"finish_reason":"stop"' in received
    assert received.rstrip().endswith(b"[DONE]")
    show("gateway", took_s, 10, ended_answers=1, refused=1)


def test_the_pipeline_ends_its_batch_and_another_goes_on_within_a_second(
    store: Store, address: Address, connection: Connection, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(store).until_us == 0
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    monkeypatch.setenv(CONVERT_MEMORY_ENV, "401")  # batches of some hundred spans
    hosts = [data_dir, *(DataDir(data_dir.path.with_name(name)).open() for name in ("second", "third"))]
    with ExitStack() as roles:
        pipelines = {
            host: Role(host, "spanloop.pipeline", "--interval-s", "0.1", "--status-port", "0") for host in hosts
        }
        for pipeline in pipelines.values():
            roles.callback(pipeline.close)
        wait_until(lambda: all(host.running("pipeline") for host in hosts))
        wait_until(lambda: all(metric(host, "pipeline", "rounds_total") for host in hosts))
        connection.command(CALLS, doing="filling", parameters={"count": CALL_COUNT})
        wait_until(lambda: any(metric(host, "pipeline", "converting") for host in hosts))
        (converting,) = (host for host in hosts if metric(host, "pipeline", "converting"))
        next_one, waiting = (host for host in hosts if host is not converting)
        waiting_s = pipelines[waiting].terminate()
        took_s = pipelines[converting].terminate()
        ended_s = time.monotonic()
        left = CALL_COUNT - episodes(connection)
        wait_until(lambda: metric(next_one, "pipeline", "converting") == 1)
        followed_s = time.monotonic() - ended_s
        wait_until(lambda: metric(next_one, "pipeline", "lag_spans") == 0)
        pipelines[next_one].terminate()
    assert episodes(connection) == CALL_COUNT
    show("pipeline", took_s, 30, left=left, doubled=0, next_after_s=round(followed_s, 1))
    show("pipeline that waits", waiting_s, 10)
    assert 0 < left < CALL_COUNT


def episodes(connection: Connection) -> int:
    """The current episodes; each has a trace of its own."""
    sql = "SELECT count() AS n, uniqExact(trace_ids) AS traces FROM episodes FINAL WHERE is_deleted = 0"
    count, traces = connection.query(sql, doing="counting").row(0)
    assert count == traces
    return int(count)


def test_scheduler_and_runner_give_lead_and_jobs_away(data_dir: DataDir, tmp_path: Path) -> None:
    job_file = tmp_path / "job.py"
    job_file.write_text(JOB)
    Registry(data_dir).add("tiny", write_model(tmp_path / "tiny", 1))
    api = JobApi(data_dir)
    job = api.submit(JobSpec.of(kind="sft", base="tiny"))
    begins = data_dir.jobs / job.id / "begins"
    runs = ("--runner", f"{sys.executable} {job_file}", "--poll-s", "0.1")
    hosts = [DataDir(data_dir.path), DataDir(data_dir.path)]
    with ExitStack() as roles:
        first = Role(hosts[0], "spanloop.training.run.scheduler", "--slots", "0", "--poll-s", "0.1")
        roles.callback(first.close)
        wait_until(lambda: leader(data_dir))
        leading = leader(data_dir)
        second = Role(hosts[1], "spanloop.training.run.scheduler", "--slots", "0", "--poll-s", "0.1")
        roles.callback(second.close)
        runner = Role(data_dir, "spanloop.training.run.runner", *runs)
        roles.callback(runner.close)
        wait_until(begins.exists)
        scheduler_s = first.terminate()
        ended_s = time.monotonic()
        wait_until(lambda: leader(data_dir) not in {"", leading})
        followed_s = time.monotonic() - ended_s
        assert api.get(job.id).state is JobState.RUNNING
        runner_s = runner.terminate()
        assert api.get(job.id).state is JobState.QUEUED
        (begins.parent / "may-end").touch()
        other = Role(data_dir, "spanloop.training.run.runner", *runs)
        roles.callback(other.close)
        wait_until(lambda: api.get(job.id).state is JobState.SUCCEEDED)
        other.terminate()
        second.terminate()
    assert begins.read_text() == "xx"
    show("scheduler", scheduler_s, 10, next_after_s=round(followed_s, 1))
    assert followed_s < 5
    show("runner", runner_s, 10, attempts=2, ends=1)


def test_the_dashboard_ends_while_a_page_is_open(data_dir: DataDir) -> None:
    dashboard = Role(data_dir, "spanloop.dashboard", "--port", str(free_port()))
    try:
        wait_until(lambda: data_dir.running("dashboard"))
        running = data_dir.running("dashboard")
        assert running is not None
        with httpx.stream("GET", running.url, timeout=60) as page:
            assert page.status_code == 200
            took_s = dashboard.terminate()
    finally:
        dashboard.close()
    show("dashboard", took_s, 10)


def leader(data_dir: DataDir) -> str:
    with ControlDatabase(ControlPaths.of(data_dir)).read() as session:
        row = session.get(LeaderRow, SCHEDULER)
        return "" if row is None else row.owner


def metric(data_dir: DataDir, role: str, name: str) -> float:
    running = data_dir.running(role)
    assert running is not None
    text = httpx.get(f"{running.url}/metrics", timeout=60).text
    found = re.search(rf"^spanloop_{role}_{name} (\S+)$", text, re.MULTILINE)
    return -1.0 if found is None else float(found[1])


def clickhouse_url(address: Address) -> str:
    return f"http://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
