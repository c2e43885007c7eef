"""Each role as a process of its own, which the others find by addresses and a key alone."""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.store import connect
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.deploy import deploy

from ..collector.collector.collectors import PROTOBUF, trace_request
from ..dashboard.cli.support import SPANLOOP, eventually
from ..gateway.support import StandIn, serving, write_model
from .processes import Roles

AGENT = """
import json, os, sys, urllib.request
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [{"role": "user", "content": "hi"}]}).encode()
headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
request = urllib.request.Request(f"{base}/chat/completions", body, headers)
print(json.load(urllib.request.urlopen(request))["model"])
"""


def as_it_is(model: ModelVersion) -> Path:
    return model.path


def counted(directory: DataDir) -> int:
    with connect(directory) as store:
        return int(store.query("demo_totals").row(0, named=True)["spans"])


def are_running(directory: DataDir, *services: str) -> bool:
    return all(directory.running(name) for name in services)


@pytest.mark.slow
def test_separate_roles_find_each_other_by_addresses_and_a_key(roles: Roles, tmp_path: Path) -> None:
    for name in ("clickhouse", "collector-1", "collector-2", "pipeline", "scheduler"):
        roles.start(name)
    stand_in = StandIn(write_model(tmp_path / "served", 1))
    with serving(stand_in.app()) as upstream:
        roles.start("gateway", "--upstream", upstream)

        for number, name in enumerate(("collector-1", "collector-2")):
            url = f"{roles.url(name)}/v1/traces"
            body = trace_request(1, 2, trace_id=number + 1).SerializeToString()
            assert httpx.post(url, content=body, headers={"content-type": PROTOBUF}).status_code == 401
            headers = {"content-type": PROTOBUF, "authorization": f"Bearer {roles.key}"}
            assert httpx.post(url, content=body, headers=headers).status_code == 200
        assert eventually(lambda: counted(roles.operator) == 4)

        Registry(roles.operator).add("m", write_model(tmp_path / "source", 2))
        assert deploy(roles.operator, "m", serving_path=as_it_is).reference == "m@v1"
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
        for shown in (doctor, *(role.command_line for role in roles.started.values())):
            assert all(secret not in shown for secret in roles.secrets)
        assert set(roles.stop().values()) == {0}


@pytest.mark.slow
def test_up_runs_what_the_same_file_does_not_name_elsewhere(roles: Roles, tmp_path: Path) -> None:
    for name in ("clickhouse", "collector-1"):
        roles.start(name)
    stand_in = StandIn(write_model(tmp_path / "served", 1))
    with serving(stand_in.app()) as upstream:
        roles.start("gateway", "--upstream", upstream)
        command = [str(SPANLOOP), "up", "--no-dashboard", "--data-dir", str(tmp_path / "up")]
        up_log = tmp_path / "up.log"
        with up_log.open("wb") as log:
            up = subprocess.Popen(command, env=roles.environment(), stdout=log, stderr=log)
        try:
            here = DataDir(tmp_path / "up")
            assert eventually(lambda: are_running(here, "scheduler", "pipeline")), up_log.read_text()
            time.sleep(1)
            assert not any(are_running(here, name) for name in ("clickhouse", "collector", "gateway"))
        finally:
            up.terminate()
            assert up.wait(60) == 0
