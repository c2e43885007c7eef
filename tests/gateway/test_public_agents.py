"""Agents and tasks of public reports, recorded and converted: rows and verdicts are those that authors expect."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ..collector.collector.collectors import CollectorProcess
from ..instrumentation.support import BIN, clean_environment
from .support import TIMEOUT_S, Process, wait_until

REPORTS = Path(__file__).parents[2].parent / "shared" / "data" / "public_reports" / "gateway"
_ENGINE_CHANGES = (
    # Choices differ, so that the used one can be told from the other.
    ('"content": "tok "*N', '"content": f"tok {i} "*N'),
    # Only the call with the short timeout takes longer than it waits, and only the abandoned stream is slow.
    ("asyncio.sleep(DELAY*N)", 'asyncio.sleep(3 if body.get("max_tokens") == 800 else 0)'),
    ("asyncio.sleep(DELAY)", 'asyncio.sleep(0.05 if body.get("max_tokens") == 400 else 0)'),
)
_PACKAGES = ("openai@6", "ai@6", "@ai-sdk/openai-compatible@2", "@ai-sdk/openai@3", "zod@4")

pytestmark = pytest.mark.skipif(not REPORTS.exists(), reason="the public reports are not here")


@dataclass
class Services:
    """Collector and gateway as processes, in front of the engine of the reports."""

    gateway: Process
    environment: dict[str, str]

    @property
    def port(self) -> str:
        return str(httpx.URL(self.gateway.url).port)

    def run(self, *command: str, timeout_s: float = 4 * TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=self.environment
        )


@pytest.fixture
def services(
    data_dir: DataDir, address: Address, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Services]:
    assert store.database == address.database
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    environment = {**clean_environment(), DATA_DIR_ENV: str(data_dir.path), CLICKHOUSE_URL_ENV: url, "COLUMNS": "200"}
    with _engine(tmp_path) as upstream, _processes(data_dir, url, upstream) as gateway:
        wait_until(lambda: gateway.health()["engine"] == "serving")
        yield Services(gateway, environment)


@contextmanager
def _engine(folder: Path) -> Generator[str]:
    text = (REPORTS / "fake_engine.py").read_text()
    for before, after in _ENGINE_CHANGES:
        assert before in text
        text = text.replace(before, after)
    program = folder / "fake_engine.py"
    program.write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "FAKE_LOG": str(folder / "fake.log"), "FAKE_DELAY_S": "1"}
    with subprocess.Popen([sys.executable, str(program), str(port)], env=environment) as engine:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            engine.terminate()


@contextmanager
def _processes(data_dir: DataDir, clickhouse_url: str, upstream: str) -> Generator[Process]:
    collector = CollectorProcess(data_dir, clickhouse_url)
    try:
        assert collector.url
        gateway = Process(data_dir, "--upstream", upstream)
        try:
            yield gateway
        finally:
            gateway.client.close()
            gateway.stop()
    finally:
        collector.terminate()


def test_the_rows_of_public_agents_have_the_tokens_of_what_they_used(
    services: Services, store: Store, tmp_path: Path
) -> None:
    for name in ("agent1.py", "agent2.py", "agent3.py"):
        text = (REPORTS / name).read_text().replace(":9210/", f":{services.port}/").replace('"smol"', '"fake@v1"')
        (tmp_path / name).write_text(text)
        command = (str(BIN / "opentelemetry-instrument"), sys.executable, str(tmp_path / name))
        finished = services.run(*command)
        assert (finished.returncode, "EXC" in finished.stdout) == (0, False), finished.stdout + finished.stderr
        if name == "agent2.py":
            assert "reward(nan, name='reward') was not sent" in finished.stderr
    convert(store)
    sql = (
        "SELECT task_id, step, untrainable_reason, action, token_source, response_id FROM transitions "
        "ORDER BY task_id, step"
    )
    rows = store.connection.query(sql, doing="reading transitions").to_dicts()
    problems = {(row["task_id"], row["step"], row["untrainable_reason"]) for row in rows if row["untrainable_reason"]}
    assert problems == {
        ("gw-disconnect", 0, "incomplete_stream"),
        ("gw-timeout", 0, "request_failed"),
        ("gw-n2_only", 0, "ambiguous_choice"),
        ("gw2-bestofn-last", 0, "ambiguous_choice"),
    }
    used = {(row["task_id"], row["step"]): row["action"] for row in rows}
    assert "tok 1" in used["gw-n2_second", 0]
    assert "tok 0" in used["gw-n2_first", 0]
    sampling = store.connection.query(
        "SELECT response_id, mapContains(sampling, 'strict_tools') AS is_strict FROM generations", doing="reading"
    )
    strict = {row["response_id"] for row in sampling.to_dicts() if row["is_strict"]}
    assert strict == {row["response_id"] for row in rows if row["task_id"] == "gw3-strict"}
    rewards = store.connection.query(
        "SELECT task_id, reward FROM episode_summaries FINAL WHERE is_deleted = 0", doing="reading rewards"
    ).to_dicts()
    by_task: dict[str, list[float | None]] = {}
    for row in rewards:
        by_task.setdefault(row["task_id"], []).append(row["reward"])
    assert [by_task[f"gw2-reward-{name}"] for name in ("nan", "inf", "none")] == [[None]] * 3
    assert sorted(by_task["gw2-nan-group"], key=str) == [0.0, 1.0, 1.0, None]
    assert {"$x$ and $y$", "line1\nline2\n# h1", "https://example.com/x?a=1", "\u202egnp.exe"} <= set(by_task)


@pytest.mark.slow
def test_public_tasks_are_run_or_refused_by_name(services: Services) -> None:
    agent = f"{sys.executable} {REPORTS / 'eval_agent.py'}"
    options = ("--model", "fake@v1", "--grader", "exact", "--no-instrument", "--timeout", "25")
    tasks = REPORTS / "eval_tasks.jsonl"
    finished = services.run(str(BIN / "spanloop"), "run", str(tasks), "--agent", agent, *options, "--run", "ev")
    assert finished.returncode == 1
    refusals = [line for line in finished.stderr.splitlines() if f"{tasks}:" in line]
    assert [line.split(f"{tasks}:")[1].split(":")[0] for line in refusals] == ["8", "10", "11"]
    shown = services.run(str(BIN / "spanloop"), "runs", "show", "ev").stdout
    lines = [line.split() for line in shown.splitlines() if line.startswith("ev/")]
    states = {words[0]: words[2] for words in lines}
    assert states == {
        "ev/ok:100:": "finished",
        "ev/json:100:": "finished",
        "ev/crash:100:": "crashed",
        "ev/sleep:100:": "timed_out",
        "ev/silent:100:": "finished",
        "ev/kill:100:": "crashed",
        "ev/bytes:100:": "finished",
        "ev/dup": "finished",
    }


@pytest.mark.slow
def test_ids_of_public_tasks_are_printed_as_they_are(services: Services, tmp_path: Path) -> None:
    records = [json.loads(line) for line in (REPORTS / "emoji_tasks.jsonl").read_text().splitlines()]
    for number, record in enumerate(records):
        record["question"] += f" ({number})"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = ("--agent", "echo 42", "--no-instrument", "--model", "fake@v1", "--grader", "exact", "--run", "ids")
    run = services.run(str(BIN / "spanloop"), "run", str(tasks), *options)
    shown = services.run(str(BIN / "spanloop"), "runs", "show", "ids")
    for output in (run, shown):
        assert output.returncode == 0, output.stderr
        assert all(record["id"] in output.stdout for record in records), output.stdout


@pytest.mark.slow
def test_public_javascript_clients_are_served(services: Services, tmp_path: Path) -> None:
    npm = shutil.which("npm")
    installed = npm and services.run(npm, "install", "--prefix", str(tmp_path), "--silent", *_PACKAGES).returncode == 0
    if not installed:
        pytest.skip("the packages cannot be installed: npm, or its package index, is not here")
    outputs: dict[str, list[str]] = {}
    for name in ("surr.mjs", "aisdk.mjs"):
        shutil.copy(REPORTS / name, tmp_path / name)
        finished = services.run("node", str(tmp_path / name), services.port, "fake@v1")
        assert finished.returncode == 0, finished.stderr
        outputs[name] = finished.stdout.splitlines()
    surrogate = outputs["surr.mjs"][0]
    assert surrogate.startswith("BadRequestError 400 ")
    assert " calls 1 ms " in surrogate
    assert any("max_model_len: 4096" in line for line in outputs["surr.mjs"])
    assert len(outputs["aisdk.mjs"]) == 4
    for line in outputs["aisdk.mjs"]:
        assert '"finish":1' in line
        assert '["stop",{"inputTokens":256' in line
