"""A rehearsal of a loss: back up while everything runs, lose everything, restore on an empty machine, and go on."""

import hashlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import httpx
import pytest

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV
from spanloop.store import connect
from spanloop.store.discovery import embedded_address
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec

from ...conftest import MEMORY_CAP_BYTES
from ...gateway.support import Process, StandIn, serving, write_model
from ...training.jobs.postgresql_server import PostgreSqlServer, find_programs
from ..collector.collectors import trace_request

SHARED_DIR_ENV = "SPANLOOP_SHARED_DIR"
ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.response.id": "r%d",
    "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "q%d"}]}]',
    "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "a"}]}]',
}
RUNNER = """
import sys, time
from spanloop.foundation.paths import DataDir
from spanloop.training.models.checkpoint_fence import claim
from spanloop.training.jobs.progress import job_token, report_progress

data_dir, job_id = DataDir(sys.argv[2]), sys.argv[4]
claim(data_dir.jobs / job_id / "checkpoints", job_token())
for step in range(1, 31):
    time.sleep(0.1)
    report_progress(data_dir, job_id, job_token(), step, 30)
"""
"""Trains for three seconds, and writes no checkpoint that it may not write."""
FOUND = "SELECT SpanId AS span, count() AS n FROM otel_traces GROUP BY span"
CONVERTED = """
SELECT
    (SELECT count() FROM episodes FINAL WHERE is_deleted = 0) AS episodes,
    (
        SELECT count() FROM transitions
        WHERE (episode_id, revision) IN (SELECT episode_id, revision FROM episodes FINAL WHERE is_deleted = 0)
    ) AS transitions
"""


@dataclass
class Machine:
    """Roles, and all that they keep."""

    root: Path
    roles: ExitStack = field(default_factory=ExitStack)

    @property
    def data_dir(self) -> DataDir:
        return DataDir(self.root / "data")

    def start(self, module: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a role, which is killed with the machine."""
        command = [sys.executable, "-m", module, "--data-dir", str(self.data_dir.path), *options]
        with (self.root / f"{module}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.roles.callback(process.wait)
        self.roles.callback(process.kill)
        return process

    def url_of(self, role: str) -> str:
        wait_until(lambda: self.data_dir.running(role) is not None)
        running = self.data_dir.running(role)
        assert running is not None
        return running.url

    def spanloop(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "spanloop.cli", *arguments, "--data-dir", str(self.data_dir.path)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def lose(self) -> None:
        """Kill -9 everything, and remove its files."""
        self.roles.close()
        shutil.rmtree(self.root)


class Sender:
    """Sends one span after the other, each a trace of its own, and remembers what was acknowledged."""

    def __init__(self, url: str, key: str) -> None:
        self._url, self._key = url, key
        self.sent = 0
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._stop.is_set():
                self.sent += 1
                request = trace_request(self.sent, trace_id=self.sent)
                span = request.resource_spans[0].scope_spans[0].spans[0]
                for name, value in ATTRIBUTES.items():
                    pair = span.attributes.add()
                    pair.key, pair.value.string_value = name, value.replace("%d", str(self.sent))
                body = request.SerializeToString()
                headers = {"content-type": "application/x-protobuf", "authorization": f"Bearer {self._key}"}
                if client.post(f"{self._url}/v1/traces", content=body, headers=headers).status_code == 200:
                    self.acknowledged.append(f"{self.sent:016x}")
                time.sleep(0.005)


def wait_until(holds: Callable[[], bool], timeout_s: float = 120) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up_s, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSqlServer]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgreSqlServer.running(programs) as server:
        yield server
        dispose_engines()


@contextmanager
def machine(
    root: Path, *, is_external: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Generator[Machine]:
    """An empty machine; an external one has its databases and its models elsewhere."""
    root.mkdir()
    made = Machine(root)
    for name in (CLICKHOUSE_URL_ENV, CONTROL_URL_ENV, SHARED_DIR_ENV):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as servers:
        if is_external:
            server = DataDir(root / "server")
            servers.enter_context(EmbeddedClickHouse(server, memory_cap_bytes=MEMORY_CAP_BYTES))
            address = embedded_address(server)
            authority = f"{address.user}:{address.password}@{address.host}:{address.port}"
            monkeypatch.setenv(CLICKHOUSE_URL_ENV, f"http://{authority}/{address.database}")
            database: PostgreSqlServer = request.getfixturevalue("postgresql")
            monkeypatch.setenv(CONTROL_URL_ENV, servers.enter_context(database.database()))
            (root / "shared").mkdir()
            monkeypatch.setenv(SHARED_DIR_ENV, str(root / "shared"))
        try:
            yield made
        finally:
            made.roles.close()
            dispose_engines()


@contextmanager
def clickhouse(on: Machine, *, is_external: bool) -> Generator[None]:
    """The store of a machine, running."""
    if is_external:
        yield
        return
    with EmbeddedClickHouse(on.data_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
        yield


def digest(weights: Path) -> str:
    content = weights.read_bytes()
    return hashlib.sha256(f"{weights.name}\0{len(content)}\0".encode() + content).hexdigest()


def lag(on: Machine, key: str) -> float:
    response = httpx.get(f"{on.url_of('pipeline')}/metrics", headers={"authorization": f"Bearer {key}"}, timeout=60)
    lines = [line for line in response.text.splitlines() if line.startswith("spanloop_pipeline_lag_spans ")]
    return float(lines[0].split()[1]) if lines else 1.0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_external", [False, True])
def test_what_was_acknowledged_before_a_backup_outlives_the_loss_of_everything(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, *, is_external: bool
) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text(RUNNER)
    run_jobs = ("--runner", f"{sys.executable} {runner}", "--poll-s", "0.1")
    place = tmp_path / "monday"
    with (
        machine(tmp_path / "a", is_external=is_external, request=request, monkeypatch=monkeypatch) as a,
        clickhouse(a, is_external=is_external),
    ):
        a.data_dir.open()
        Registry(a.data_dir).add("tiny", write_model(tmp_path / "tiny", 7))
        keys = KeyRing(a.data_dir)
        app, operator = keys.create("app", [Scope.INGEST]).secret, keys.create("op", [Scope.READ]).secret
        a.start("spanloop.collector", "--port", "0", "--no-grpc")
        a.start("spanloop.pipeline", "--interval-s", "0.2")
        a.start("spanloop.training.run.scheduler", *run_jobs)
        with Sender(a.url_of("collector"), app) as sender:
            wait_until(lambda: len(sender.acknowledged) > 300)
            jobs = [JobApi(a.data_dir).submit(JobSpec.of(kind="sft", base="tiny")).id for _ in range(3)]
            wait_until(lambda: JobApi(a.data_dir).get(jobs[0]).state is not JobState.QUEUED)
            before = set(sender.acknowledged)
            a.spanloop("backup", str(place), "--models")
            during = len(sender.acknowledged) - len(before)
        sent = sender.sent
    a.lose()
    manifest = json.loads((place / "manifest.json").read_text())
    with machine(tmp_path / "b", is_external=is_external, request=request, monkeypatch=monkeypatch) as b:
        b.spanloop("restore", str(place))
        with clickhouse(b, is_external=is_external), connect(b.data_dir) as store:
            found = {str(span): int(n) for span, n in store.connection.query(FOUND, doing="reading").iter_rows()}
            lost, doubled = before - set(found), [span for span, n in found.items() if n != 1]
            assert (lost, doubled) == (set(), [])
            assert len(found) == manifest["tables"]["otel_traces"]
            api = JobApi(b.data_dir)
            assert sorted(job.id for job in api.list()) == sorted(jobs)
            version = Registry(b.data_dir).get("tiny")
            assert digest(version.path / "model.safetensors") == version.weights_sha256
            assert [key.name for key in KeyRing(b.data_dir).list()] == ["app", "op"]
            b.start("spanloop.pipeline", "--interval-s", "0.2", "--status-port", "0")
            b.start("spanloop.training.run.scheduler", *run_jobs)
            wait_until(lambda: lag(b, operator) == 0)
            converted = store.connection.query(CONVERTED, doing="reading").row(0)
            assert converted == (len(found), len(found))
            wait_until(lambda: all(job.state is JobState.SUCCEEDED for job in api.list()))
            with serving(StandIn(write_model(tmp_path / "other", 1)).app()) as upstream:
                gateway = Process(b.data_dir, "--upstream", upstream)
                b.roles.callback(gateway.process.wait)
                b.roles.callback(gateway.process.kill)
                wait_until(lambda: gateway.health()["engine"] == "serving")
                gateway.deploy(version.version, version.path)
                assert gateway.health()["version"] == "v1"
                gateway.stop()
    kind = "external" if is_external else "embedded"
    print(  # noqa: T201 - the ledger
        f"{kind}: sent {sent}, acknowledged before the backup {len(before)}, during it {during}, "
        f"restored {len(found)}, lost 0, doubled 0, episodes {len(found)}, jobs 3 of 3 succeeded"
    )
