"""Each role as a process of its own, which the others find by addresses and a key alone."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from spanloop.datadir import DataDir
from spanloop.store import connect
from spanloop.training.deploy import deploy
from spanloop.training.registry import ModelVersion, Registry

from ..cli.support import SPANLOOP, eventually
from ..collector.collectors import PROTOBUF, trace_request
from ..gateway.support import StandIn, serving, write_model
from ..ports import free_port

PASSWORD = "a-password-of-the-store"
AGENT = """
import json, os, sys, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
request = urllib.request.Request(f"{base}/chat/completions", body, headers)
print(json.load(urllib.request.urlopen(request))["model"])
"""


class Roles:
    """Processes of ``spanloop serve``, each with a data directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {name: free_port() for name in ("clickhouse", "collector", "second", "gateway")}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        secrets = folder / "secrets"
        secrets.mkdir()
        (folder / "shared").mkdir()
        (secrets / "password").write_text(PASSWORD)
        url = f"http://spanloop:{PASSWORD}@127.0.0.1:{self.ports['clickhouse']}/spanloop"
        (secrets / "clickhouse").write_text(url)
        (folder / "spanloop.toml").write_text(
            f"""
            [services]
            collector_url = "http://127.0.0.1:{self.ports["collector"]}"
            gateway_url = "http://127.0.0.1:{self.ports["gateway"]}"
            clickhouse_url_file = "secrets/clickhouse"
            control_url = "sqlite:///{folder}/control.db"
            key_file = "secrets/key"
            [storage]
            shared_dir = "shared"
            [serve.clickhouse]
            port = {self.ports["clickhouse"]}
            password_file = "{secrets}/password"
            [serve.collector]
            port = {self.ports["collector"]}
            [serve.gateway]
            port = {self.ports["gateway"]}
            """
        )

    def environment(self) -> dict[str, str]:
        return {**os.environ, "SPANLOOP_CONFIG": str(self.folder / "spanloop.toml"), "COLUMNS": "250"}

    def run(self, *arguments: str, host: str = "operator") -> subprocess.CompletedProcess[str]:
        command = [str(SPANLOOP), *arguments, "--data-dir", str(self.folder / host)]
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=200, check=False)

    def start(self, role: str, *options: str, host: str = "") -> None:
        name = host or role
        command = [str(SPANLOOP), "serve", role, "--data-dir", str(self.folder / name), *options]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log)
        assert eventually(lambda: self.is_announced(role, name)), (self.folder / f"{name}.log").read_text()

    def is_announced(self, role: str, host: str) -> bool:
        running = DataDir(self.folder / host).running(role)
        assert self.processes[host].poll() is None, (self.folder / f"{host}.log").read_text()
        return running is not None and running.pid == self.processes[host].pid

    def stop(self) -> dict[str, int]:
        codes: dict[str, int] = {}
        for name, process in reversed(self.processes.items()):
            process.terminate()
            codes[name] = process.wait(30)
        return codes


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    found = Roles(tmp_path)
    yield found
    for process in found.processes.values():
        process.kill()
        process.wait()


def as_it_is(model: ModelVersion) -> Path:
    return model.path


def counted(directory: DataDir) -> int:
    with connect(directory) as store:
        return int(store.query("demo_totals").row(0, named=True)["spans"])


@pytest.mark.slow
def test_separate_roles_find_each_other_by_addresses_and_a_key(
    roles: Roles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = roles.run("keys", "create", "operator", "--scope", "admin").stdout.strip()
    (tmp_path / "secrets" / "key").write_text(key)
    roles.start("clickhouse")
    roles.start("collector", host="first")
    roles.start("collector", "--port", str(roles.ports["second"]), host="second")
    roles.start("pipeline")
    roles.start("scheduler")
    stand_in = StandIn(write_model(tmp_path / "served", 1))
    with serving(stand_in.app()) as upstream:
        roles.start("gateway", "--upstream", upstream)
        for name, value in roles.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SPANLOOP_CLICKHOUSE_URL_FILE", str(tmp_path / "secrets" / "clickhouse"))
        monkeypatch.setenv("SPANLOOP_CONTROL_URL", f"sqlite:///{tmp_path}/control.db")
        monkeypatch.setenv("SPANLOOP_GATEWAY_URL", f"http://127.0.0.1:{roles.ports['gateway']}")
        monkeypatch.setenv("SPANLOOP_KEY", key)
        monkeypatch.setenv("SPANLOOP_SHARED_DIR", str(tmp_path / "shared"))
        operator = DataDir(tmp_path / "operator").open()

        for number, name in enumerate(("collector", "second")):
            url = f"http://127.0.0.1:{roles.ports[name]}/v1/traces"
            body = trace_request(1, 2, trace_id=number + 1).SerializeToString()
            assert httpx.post(url, content=body, headers={"content-type": PROTOBUF}).status_code == 401
            headers = {"content-type": PROTOBUF, "authorization": f"Bearer {key}"}
            assert httpx.post(url, content=body, headers=headers).status_code == 200
        assert eventually(lambda: counted(operator) == 4)

        Registry(operator).add("m", write_model(tmp_path / "source", 2))
        assert deploy(operator, "m", serving_path=as_it_is).reference == "m@v1"
        status = json.loads(roles.run("status", "--json").stdout)
        assert status["gateway"]["model"] == "m@v1"
        assert (status["stored"]["spans"], status["store_error"]) == (4, "")

        (tmp_path / "tasks.jsonl").write_text('{"id": "a", "answer": "m@v1"}\n')
        (tmp_path / "agent.py").write_text(AGENT)
        ran = roles.run(
            *("run", str(tmp_path / "tasks.jsonl"), "--agent", f"{sys.executable} {tmp_path / 'agent.py'}"),
            *("--grader", "exact", "--run", "r"),
        )
        assert ran.returncode == 0, ran.stderr
        assert "1 (100.0%)" in ran.stdout, ran.stdout

        doctor = roles.run("doctor").stdout
        for claim in ("collector: http", "gateway: http", "ClickHouse: http", "clock of ClickHouse", "shared folder"):
            assert f"✓ {claim}" in doctor, doctor
        assert "the key is accepted for serve, train, read" in doctor
        assert all(secret not in doctor for secret in (PASSWORD, key))
        for process in roles.processes.values():
            command_line = Path(f"/proc/{process.pid}/cmdline").read_text()
            assert PASSWORD not in command_line
            assert key not in command_line
        assert set(roles.stop().values()) == {0}


@pytest.mark.slow
def test_up_runs_what_the_same_file_does_not_name_elsewhere(roles: Roles, tmp_path: Path) -> None:
    key = roles.run("keys", "create", "operator", "--scope", "admin").stdout.strip()
    (tmp_path / "secrets" / "key").write_text(key)
    roles.start("clickhouse")
    roles.start("collector", host="first")
    stand_in = StandIn(write_model(tmp_path / "served", 1))
    with serving(stand_in.app()) as upstream:
        roles.start("gateway", "--upstream", upstream)
        command = [str(SPANLOOP), "up", "--no-dashboard", "--data-dir", str(tmp_path / "up")]
        with (tmp_path / "up.log").open("wb") as log:
            up = subprocess.Popen(command, env=roles.environment(), stdout=log, stderr=log)
        try:
            here = DataDir(tmp_path / "up")
            wanted: Callable[[], bool] = lambda: all(here.running(name) for name in ("scheduler", "pipeline"))  # noqa: E731
            assert eventually(wanted), (tmp_path / "up.log").read_text()
            time.sleep(1)
            assert [name for name in ("clickhouse", "collector", "gateway") if here.running(name)] == []
        finally:
            up.terminate()
            assert up.wait(60) == 0
