"""The files of ``docker/``, without an engine: compose, Dockerfile, pinned versions, first start and health check."""

import json
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import first_start
import healthcheck
import pin_requirements
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spanloop.cli.services import serve
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.gateway.engine.serving_environment import SERVING_VENV_ENV
from spanloop.runtime.environment_checks import CPU_REQUIREMENT, GPU_REQUIREMENT
from spanloop.semconv.environment import DATA_DIR_ENV, SHARED_DIR_ENV

DOCKER = Path(__file__).parents[2] / "docker"
BIN = Path(sys.executable).parent
OWN = ("spanloop-server", "spanloop-training", "spanloop-serving")


def tool(name: str) -> str:
    path = BIN / name
    if not path.exists():
        pytest.skip(f"{name} is not installed")
    return str(path)


def parsed(*options: str, variables: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the services of the compose files, with every default filled in that ``variables`` do not set."""
    command = [tool("docker-compose"), *options, "config", "--format", "json"]
    environment = {"HOME": "/tmp", **(variables or {})}
    completed = subprocess.run(command, cwd=DOCKER, env=environment, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return cast("dict[str, dict[str, Any]]", json.loads(completed.stdout)["services"])


ROLES = {str(command.name) for command in serve.app.registered_commands} - {"clickhouse"}
"""The roles of ``spanloop serve`` that every profile starts."""


@pytest.mark.parametrize(
    ("options", "databases"),
    [
        ((), {"clickhouse", "postgres", "init"}),
        (("--profile", "embedded"), {"clickhouse-embedded", "init-embedded"}),
        (("--file", "compose.yaml", "--file", "compose.gpu.yaml"), {"clickhouse", "postgres", "init"}),
    ],
    ids=["databases", "embedded", "gpu"],
)
def test_each_profile_is_the_whole_stack_and_every_container_is_confined(
    options: tuple[str, ...], databases: set[str]
) -> None:
    services = parsed(*options)
    assert set(services) == ROLES | databases
    version = tomllib.loads((DOCKER.parent / "pyproject.toml").read_text())["project"]["version"]
    for name, service in services.items():
        image, tag = service["image"].rsplit(":", 1)
        assert tag != "latest"
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert int(service["mem_limit"]) > 0, name
        assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", ())), name
        if image in OWN:
            assert tag.removesuffix("-cuda") == version
            assert service["read_only"] is True, name
            assert "cap_add" not in service
        else:
            assert databases & {name}
    assert all(service["restart"] == "unless-stopped" for name, service in services.items() if "init" not in name)
    embedded = {name for name, service in services.items() if service["image"].split(":")[0] not in OWN}
    assert embedded == databases & {"clickhouse", "postgres"}


def test_gpus_go_to_the_runner_and_the_gateway() -> None:
    services = parsed("--file", "compose.yaml", "--file", "compose.gpu.yaml")
    with_gpu = {name for name, service in services.items() if "devices" in json.dumps(service.get("deploy", {}))}
    assert with_gpu == {"runner", "gateway"}
    assert all(services[name]["image"].endswith("-cuda") for name in with_gpu)


def test_links_of_alerts_lead_to_the_published_dashboard() -> None:
    (port,) = parsed()["dashboard"]["ports"]
    alerts = tomllib.loads((DOCKER / "spanloop.toml").read_text())["alerts"]
    assert alerts == {"dashboard_url": f"http://{port['host_ip']}:{port['published']}"}


def test_secrets_of_a_file_reach_one_role_alone(tmp_path: Path) -> None:
    roles = ("pipeline", "runner", "scheduler")
    for role in roles:
        (tmp_path / role).write_text(f"{role}_token=secret\n")
    services = parsed(variables={f"SPANLOOP_{role.upper()}_ENV_FILE": str(tmp_path / role) for role in roles})
    for role in roles:
        assert {name for name, each in services.items() if f"{role}_token" in each.get("environment", {})} == {role}


def test_hadolint_finds_nothing() -> None:
    completed = subprocess.run(
        [tool("hadolint"), str(DOCKER / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stdout


@pytest.mark.parametrize("image", list(pin_requirements.EXTRAS))
def test_an_image_installs_pinned_versions_that_the_project_allows(image: str) -> None:
    pins = pins_of(image)
    for line in pin_requirements.required(pin_requirements.EXTRAS[image]):
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{line} has no pin; run: python docker/pin_requirements.py"
        assert requirement.specifier.contains(pin), f"{line}, and docker/ pins {pin}"


def test_the_serving_image_pins_the_vllm_of_the_serving_environment() -> None:
    requirement = Requirement(CPU_REQUIREMENT)
    assert requirement.specifier.contains(pins_of("serving-cpu")[requirement.name])
    assert GPU_REQUIREMENT in (DOCKER / "requirements-serving-cuda.txt").read_text().splitlines()
    assert f"ENV {SERVING_VENV_ENV}=/opt/serving" in (DOCKER / "Dockerfile").read_text()


def pins_of(image: str) -> dict[str, str]:
    lines = (DOCKER / f"requirements-{image}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Redirect the volumes of the first start into a folder, and return it."""
    shared = tmp_path / "shared"
    for folder in (shared, *(tmp_path / "run" / name for name in ("services", "databases", "operator"))):
        folder.mkdir(parents=True)
    monkeypatch.setattr(first_start, "ROOT", tmp_path / "run")
    monkeypatch.setenv(DATA_DIR_ENV, str(tmp_path / "data"))
    monkeypatch.setenv(SHARED_DIR_ENV, str(shared))
    return tmp_path / "run"


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text().strip() for path in folder.rglob("*") if path.is_file()}


def start(*options: str) -> None:
    assert first_start.main(["--clickhouse", "clickhouse:8123", *options]) == 0


def test_a_first_start_makes_every_secret_once(first: Path, capfd: pytest.CaptureFixture[str]) -> None:
    start("--postgres", "postgres:5432")
    made = contents(first)
    password = made["databases/clickhouse-password"]
    assert made["services/clickhouse-url"] == f"http://spanloop:{password}@clickhouse:8123/spanloop"
    assert made["services/control-url"].startswith("postgresql://spanloop:")
    assert made["services/control-url"].endswith("@postgres:5432/spanloop")
    assert {path.stat().st_mode & 0o777 for path in first.rglob("*") if path.is_file()} == {0o600}
    keys = KeyRing(DataDir())
    app = keys.find(made["operator/app.key"])
    assert app is not None
    assert app.scopes == (Scope.INGEST, Scope.SCORE, Scope.SERVE)
    assistant = keys.find(made["operator/assistant.key"])
    assert assistant is not None
    assert assistant.scopes == (Scope.ASK,)
    user = Users(DataDir()).verify(first_start.DASHBOARD_USER, made["operator/dashboard-password"])
    assert user is not None
    assert user.role is Role.OPERATOR

    start("--postgres", "postgres:5432")
    assert contents(first) == made
    assert not [secret for secret in made.values() if secret in "".join(capfd.readouterr())]


def test_an_interrupted_start_is_completed_and_a_revoked_key_replaced(first: Path) -> None:
    start()
    made = contents(first)
    assert made["services/control-url"] == f"sqlite:///{DataDir().shared}/control.db", "SQLite, without --postgres"
    assert "databases/postgres-password" not in made
    keys = KeyRing(DataDir())
    keys.revoke("runner")
    (first / "operator" / "app.key").unlink()
    Users(DataDir()).remove(first_start.DASHBOARD_USER)
    start()
    again = contents(first)
    changed = {name for name in made if again[name] != made[name]}
    assert changed == {"services/runner.key", "operator/app.key"}
    assert sorted(key.name for key in keys.list() if not key.revoked_at) == sorted(
        [*first_start.ROLE_SCOPES, *first_start.OPERATOR_SCOPES]
    )
    assert not Users(DataDir()).list(), "a user that somebody removed must not come back"


@pytest.fixture
def role() -> Iterator[str]:
    """The address of a role that is healthy at ``/healthz`` only."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 503)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by http.server
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("url", "status"), [("{role}/healthz", 0), ("{role}/other", 1), ("http://127.0.0.1:1/", 1), ("", 1)]
)
def test_a_container_is_healthy_when_its_role_says_so(
    url: str, status: int, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(healthcheck.URL_ENV, url.format(role=role))
    assert healthcheck.main() == status
