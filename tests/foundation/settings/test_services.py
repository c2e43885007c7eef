"""``[services]``, ``[storage]`` and ``[serve.ROLE]`` of ``spanloop.toml``."""

import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.cli.services.serve import role_command
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings import Services, Storage, load_configuration
from spanloop.foundation.settings.roles import (
    ClickhouseSettings,
    CollectorSettings,
    GatewaySettings,
    SchedulerSettings,
)
from spanloop.foundation.settings.services import export_settings
from spanloop.foundation.settings.sources import read_process
from spanloop.runtime.settings_checks import settings_checks
from spanloop.semconv.environment import (
    CLICKHOUSE_CLUSTER_ENV,
    CLICKHOUSE_URL_ENV,
    CONTROL_URL_ENV,
    FILE_SUFFIX,
    KEY_ENV,
    LOG_FORMAT_ENV,
    SERVICE_URL_ENVS,
    SHARED_DIR_ENV,
    STORAGE_CACHE_BYTES_ENV,
    STORAGE_URL_ENV,
)

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


def test_each_address_is_a_variable_that_processes_read() -> None:
    read = {*SERVICE_URL_ENVS.values(), CLICKHOUSE_URL_ENV, CLICKHOUSE_CLUSTER_ENV, CONTROL_URL_ENV, KEY_ENV}
    read |= {SHARED_DIR_ENV, STORAGE_URL_ENV, STORAGE_CACHE_BYTES_ENV}
    fields = [(section, field) for section in (Services, Storage) for field in section.model_fields]
    assert {section.variable(field).removesuffix(FILE_SUFFIX) for section, field in fields} == read


def test_a_url_with_a_password_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text('[services]\nclickhouse_url = "http://me:secret@host:1/db"\n')
    configuration = load_configuration(tmp_path)
    assert "secret" not in f"{configuration!r}"
    (check,) = settings_checks(tmp_path)
    assert (check.name, check.detail) == ("[services] of spanloop.toml", "clickhouse_url = **********")


def test_a_url_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text('[services]\ncontrol_url = "sqlite:///x"\ncontrol_url_file = "x"')
    with pytest.raises(ConfigurationError, match="control_url and control_url_file are both set"):
        load_configuration(tmp_path)


def test_an_option_wins_over_the_file_and_unset_ones_are_left_to_the_module(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text(FILE)
    command = role_command(CollectorSettings, tmp_path, {"port": 4401})
    assert command[:5] == [sys.executable, "-m", "spanloop.collector", "--data-dir", str(tmp_path)]
    assert command[5:] == ["--port=4401"]
    settings = read_process(CollectorSettings, command[3:]).settings
    assert (settings.host, settings.port, settings.allow_anonymous) == ("0.0.0.0", 4401, True)
    gateway = read_process(GatewaySettings, role_command(GatewaySettings, tmp_path, {})[3:]).settings
    assert gateway.extra_args == ("--enforce-eager", "--seed", "1")
    clickhouse = read_process(ClickhouseSettings, role_command(ClickhouseSettings, tmp_path, {})[3:]).settings
    assert (clickhouse.port, clickhouse.password_file) == (8123, tmp_path / "secrets" / "password")
    assert role_command(SchedulerSettings, tmp_path, {})[5:] == ["--slots=0"]
    assert role_command(SchedulerSettings, tmp_path, {"slots": 2})[5:] == ["--slots=2"]


def test_serve_lets_its_role_log_in_the_requested_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[str], str | None]] = []

    def note(_: str, command: list[str]) -> None:
        started.append((command, os.environ.get(LOG_FORMAT_ENV)))

    monkeypatch.setenv(LOG_FORMAT_ENV, "text")
    monkeypatch.setattr(os, "execv", note)
    options = ["--data-dir", str(tmp_path), "--log-format", "json"]
    assert CliRunner().invoke(app, ["serve", "pipeline", *options]).exit_code == 0
    assert started == [([sys.executable, "-m", "spanloop.pipeline", "--data-dir", str(tmp_path)], "json")]
    refused = CliRunner().invoke(app, ["serve", "pipeline", *options[:-1], "xml"])
    assert (refused.exit_code, len(started)) == (2, 1)


def test_doctor_names_the_variable_that_sets_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spanloop.toml").write_text("[promotion]\nmargin = 0.1\nmin_tasks = 5\n")
    monkeypatch.setenv("SPANLOOP_PROMOTION_MARGIN", "0.2")
    (check,) = settings_checks(tmp_path)
    assert check.detail == "margin = 0.2 (SPANLOOP_PROMOTION_MARGIN), min_tasks = 5"


def test_the_object_storage_reaches_every_process(tmp_path: Path) -> None:
    (tmp_path / "spanloop.toml").write_text('[storage]\nurl = "s3://bucket/prefix/"\ncache_bytes = 1000\n')
    found = load_configuration(tmp_path)
    environment: dict[str, str] = {}
    export_settings(found.services, found.storage, environment)
    assert environment == {STORAGE_URL_ENV: "s3://bucket/prefix", STORAGE_CACHE_BYTES_ENV: "1000"}
    for url, message in (("bucket", "expected a URL such as s3://"), ("s3://me:secret@bucket", "has a password")):
        (tmp_path / "spanloop.toml").write_text(f'[storage]\nurl = "{url}"\n')
        with pytest.raises(ConfigurationError, match=message) as refused:
            load_configuration(tmp_path)
        assert "secret" not in str(refused.value)
