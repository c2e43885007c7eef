"""Secrets of a running spanloop stay out of process lists, logs, spans, job specs and the manifest of a backup."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV, EXIT_TIMEOUT_ENV
from spanloop.store import connect
from spanloop.training.models.registry import Registry

from ..dashboard.cli.support import SPANLOOP, Up, eventually, everything_up
from ..gateway.support import write_model
from ..instrumentation.support import App, clean_environment

PASSWORD = "correct horse battery staple"
APP = """
import openai
try:
    openai.OpenAI(max_retries=0).chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
except openai.APIError as error:
    print(type(error).__name__)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    with everything_up(tmp_path / "data") as running:
        yield running


def command_lines(processes: list[psutil.Process]) -> str:
    return "\n".join(" ".join(each.cmdline()) for each in processes if each.is_running())


def run(up: Up, *arguments: str, given: str = "") -> str:
    command = [str(SPANLOOP), *arguments, "--data-dir", str(up.data_dir)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_no_secret_leaves_its_place(up: Up, tmp_path: Path) -> None:
    data_dir = DataDir(up.data_dir).open()
    Users(data_dir).create("ann", Role.OPERATOR, PASSWORD)
    ring = KeyRing(data_dir)
    keys = {scope: ring.create(scope, [scope]).secret for scope in Scope}
    names = ("gateway/admin.token", "gateway/serve.token", "run/clickhouse.secret")
    tokens = {name: (up.data_dir / name).read_text().strip() for name in names}

    environment = {
        DATA_DIR_ENV: str(up.data_dir),
        EXIT_TIMEOUT_ENV: "60",
        "OPENAI_BASE_URL": f"http://127.0.0.1:{up.ports['gateway']}/v1",
        "OPENAI_API_KEY": keys[Scope.SERVE],
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{keys[Scope.INGEST]}",
    }
    script = tmp_path / "app.py"
    script.write_text(APP)
    ran = App(tmp_path, {**clean_environment(), **environment}).run(script)
    assert ran.stdout.strip() == "InternalServerError"
    with connect(data_dir) as store:
        assert eventually(lambda: store.query("demo_arrived").row(0)[0] > 0, 60)
    base = f"http://127.0.0.1:{up.ports['collector']}"
    refused = httpx.post(f"{base}/v1/traces", headers={"authorization": f"Bearer {keys[Scope.READ]}"}, content=b"")
    assert refused.status_code == 403
    Registry(data_dir).add("m", write_model(tmp_path / "m", 1))
    shown = run(up, "train", "m", "--steps", "1")
    shown += run(up, "users", "password", "ann", "--password-file", "-", given=f"{PASSWORD}!\n")
    shown += run(up, "backup", str(tmp_path / "backup"))

    places = {"process list": command_lines(up.descendants()), "output": shown}
    for folder in (up.data_dir / "logs", up.data_dir / "jobs", up.data_dir / "run"):
        for path in folder.rglob("*"):
            if path.is_file() and path.name != "clickhouse.secret":
                places[str(path.relative_to(up.data_dir))] = path.read_text(errors="replace")
    for path in (tmp_path / "backup").rglob("*.json"):
        places[f"backup/{path.name}"] = path.read_text(errors="replace")
    with connect(data_dir) as store:
        spans = store.connection.query("SELECT * FROM otel_traces", doing="reading spans")
    places["spans"] = str(spans.rows())
    assert keys[Scope.SERVE] not in places["spans"]
    for expected in ("logs/collector.log", "logs/gateway.log", "logs/dashboard.log", "backup/", "jobs/"):
        assert any(name.startswith(expected) for name in places), (expected, sorted(places))
    secrets = {**{f"key {scope}": key for scope, key in keys.items()}, **tokens, "password": PASSWORD}
    leaks = [
        f"{name} in {place}" for name, secret in secrets.items() for place, text in places.items() if secret in text
    ]
    assert leaks == []
