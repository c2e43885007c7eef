"""Service states from run files."""

import json
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.service_states import may_run_elsewhere, service_states, without_credentials


def test_an_announced_service_runs_and_the_others_do_not(data_dir: DataDir) -> None:
    with data_dir.announce("collector", "http://127.0.0.1:4318"):
        states = {state.name: state for state in service_states(data_dir.path)}
    assert states["collector"].is_running
    assert states["collector"].url == "http://127.0.0.1:4318"
    assert [name for name, state in states.items() if state.is_running] == ["collector"]


def test_a_dead_process_does_not_run(data_dir: DataDir) -> None:
    beyond_any_pid = 2**22 + 1
    (data_dir.run / "gateway.json").write_text(json.dumps({"url": "http://x", "pid": beyond_any_pid}))
    assert not any(state.is_running for state in service_states(data_dir.path))


def test_an_external_clickhouse_is_shown_without_its_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOP_CLICKHOUSE_URL", "https://me:secret@ch.example:8443/traces?x=1")
    clickhouse = service_states(tmp_path)[0]
    assert clickhouse.is_running
    assert clickhouse.url == "https://ch.example:8443/traces"
    assert "external" in clickhouse.note


def test_services_that_settings_name_are_not_called_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPANLOOP_GATEWAY_URL", "https://gateway.example:8010/")
    monkeypatch.setenv("SPANLOOP_CONTROL_URL", "postgresql://me:secret@db.example/spanloop")
    states = {state.name: state for state in service_states(tmp_path)}
    assert (states["gateway"].is_running, states["gateway"].url) == (True, "https://gateway.example:8010")
    assert (states["scheduler"].is_running, may_run_elsewhere(tmp_path, "scheduler")) == (False, True)
    assert not may_run_elsewhere(tmp_path, "pipeline")
    assert "secret" not in str(states)


def test_addresses_lose_credentials_and_keep_brackets() -> None:
    assert without_credentials("http://u:p@[::1]:8123/db") == "http://[::1]:8123/db"
    assert without_credentials("nonsense") == ""
