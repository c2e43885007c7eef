"""``[services]``, ``[storage]`` and ``[serve.ROLE]`` of ``spanloop.toml``."""

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.cli.services.serve import MODULES, role_command
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Serve, load_configuration
from spanloop.foundation.settings.serve import ServeGateway, role_variable
from spanloop.foundation.settings.services import export_settings
from spanloop.semconv.environment import LOG_FORMAT_ENV

FILE = """
[services]
collector_url = "http://collector.example:4318"
gateway_url = "http://gateway.example:8010"
clickhouse_url_file = "secrets/clickhouse-url"
control_url = "postgresql://me@db.example/spanloop"
key_file = "/run/secrets/key"

[storage]
shared_dir = "shared"

[serve.collector]
host = "0.0.0.0"
port = 4400
allow_anonymous = true

[serve.clickhouse]
password_file = "secrets/password"

[serve.gateway]
vllm_args = "--enforce-eager --seed 1"
"""


def test_the_file_completes_the_environment_which_wins(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text(FILE)
    found = load_configuration(tmp_path)
    environment = {"SPANLOOP_GATEWAY_URL": "http://mine:1", "SPANLOOP_KEY": "mine", "SPANLOOP_CLICKHOUSE_URL": ""}
    export_settings(found.services, found.storage, environment)
    assert environment == {
        "SPANLOOP_COLLECTOR_URL": "http://collector.example:4318",
        "SPANLOOP_GATEWAY_URL": "http://mine:1",
        "SPANLOOP_CLICKHOUSE_URL": "",
        "SPANLOOP_CLICKHOUSE_URL_FILE": str(tmp_path / "secrets" / "clickhouse-url"),
        "SPANLOOP_CONTROL_URL": "postgresql://me@db.example/spanloop",
        "SPANLOOP_KEY": "mine",
        "SPANLOOP_SHARED_DIR": str(tmp_path / "shared"),
    }


def test_a_url_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text('[services]\ncontrol_url = "sqlite:///x"\ncontrol_url_file = "x"')
    with pytest.raises(ConfigurationError, match="control_url and control_url_file are both set"):
        load_configuration(tmp_path)


def test_an_option_wins_over_the_file_and_unset_ones_are_left_to_the_module(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text(FILE)
    serve = load_configuration(tmp_path).serve
    command = role_command("collector", tmp_path, {"port": 4401}, serve.collector)
    assert command[:5] == [sys.executable, "-m", "spanloop.collector", "--data-dir", str(tmp_path)]
    assert command[5:] == ["--host=0.0.0.0", "--port=4401", "--allow-anonymous"]
    assert role_command("gateway", tmp_path, {}, serve.gateway)[5:] == ["--vllm-args=--enforce-eager --seed 1"]
    password = f"--password-file={tmp_path}/secrets/password"
    assert role_command("clickhouse", tmp_path, {}, serve.clickhouse)[5:] == ["--port=8123", password]
    assert role_command("scheduler", tmp_path, {}, serve.scheduler)[5:] == ["--slots=0"]
    assert role_command("scheduler", tmp_path, {"slots": 2}, serve.scheduler)[5:] == ["--slots=2"]


def test_each_role_has_a_section_and_a_variable_for_each_option() -> None:
    assert set(Serve.model_fields) == set(MODULES)
    assert role_variable("gateway", "max_model_len") == "SPANLOOP_SERVE_GATEWAY_MAX_MODEL_LEN"
    assert ServeGateway(port=0).arguments() == ["--port=0"]
    assert ServeGateway(port=1, host="::").arguments("port") == ["--host=::"]


def test_serve_lets_its_role_log_in_the_requested_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], str | None]] = []

    def note(_: str, command: list[str]) -> None:
        started.append((command, os.environ.get(LOG_FORMAT_ENV)))

    monkeypatch.setenv(LOG_FORMAT_ENV, "text")
    monkeypatch.setattr(os, "execv", note)
    options = ["--data-dir", str(tmp_path), "--log-format", "json"]
    assert CliRunner().invoke(app, ["serve", "pipeline", *options]).exit_code == 0
    assert started == [([sys.executable, "-m", MODULES["pipeline"], "--data-dir", str(tmp_path)], "json")]
    refused = CliRunner().invoke(app, ["serve", "pipeline", *options[:-1], "xml"])
    assert (refused.exit_code, len(started)) == (2, 1)
