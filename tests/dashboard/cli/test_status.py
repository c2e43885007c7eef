"""``spanloop status`` and an unreachable store: what the command prints when nothing runs."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.foundation.paths import DataDir
from spanloop.pipeline.sharing import Sharing

from .support import Run
from .test_service_health import service


def test_looking_makes_no_data_directory(spanloop: Run, tmp_path: Path) -> None:
    completed = spanloop("status", "--data-dir", str(tmp_path / "nowhere"))
    assert completed.returncode == 3
    assert f"there is no data directory {tmp_path / 'nowhere'}" in completed.stdout
    assert f"spanloop up --data-dir {tmp_path / 'nowhere'}" in completed.stdout
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("host", "reason"), [("127.0.0.1:1", "Connection refused"), ("nowhere.invalid:8123", "not known")]
)
def test_a_clickhouse_out_of_reach_is_one_sentence(spanloop: Run, host: str, reason: str) -> None:
    completed = spanloop("convert", SPANLOOP_CLICKHOUSE_URL=f"http://me:secret@{host}/db")
    assert completed.returncode == 5
    what, step = completed.stderr.strip().splitlines()[-2:]
    assert what.startswith(f"error: ClickHouse is unreachable while connecting to http://me@{host}/db: ")
    assert what.endswith(f"{reason}.")
    assert "SPANLOOP_CLICKHOUSE_URL" in step
    assert "secret" not in completed.stderr


COLLECTOR = {
    "status": "ok",
    "store": "ok",
    "disk": "ok",
    "spool": {"bytes": 12, "records": 1, "oldest_age_s": 3.5, "quarantined": 1},
    "last_insert": "2026-11-20T13:00:00.5+00:00",
    "grpc": None,
    "accepted": {"logs": 2, "traces": 5},
    "rejected": {"bad_trace_id": 3},
    "refused_requests": {"400": 1},
    "redacted": {"emails": 4},
    "inserted": 7,
    "insert_failures": 2,
    "insert_latency": {"count": 3, "mean_s": 0.2, "p50_s": 0.25, "p99_s": None},
}


def test_what_the_collector_did_is_said_to_people_and_programs(data_dir: DataDir) -> None:
    with service(data_dir, "collector", COLLECTOR):
        printed = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path)])
        as_json = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path), "--json"])
    assert (printed.exit_code, as_json.exit_code) == (0, 0)
    inserts = "a block takes 0.20 s (half up to 0.25 s, 99 % above 300 s), 2 attempts failed"
    for line in (
        "accepted 7 (logs 2, traces 5), since the collector's start",
        "rejected 3 (bad_trace_id 3)",
        "refused requests 1 (400 1)",
        "redacted 4 (emails 4)",
        f"inserted 7 rows, the last at 2026-11-20T13:00:00Z; {inserts}",
        "spans waiting 12 bytes, the oldest for 4 s",
        "spool 1 damaged ranges were set aside",
    ):
        assert line in printed.stdout.splitlines()
    status = json.loads(as_json.stdout)
    expected = {name: value for name, value in COLLECTOR.items() if name not in {"status", "grpc"}}
    assert status["collector"] == expected | {"last_insert": COLLECTOR["last_insert"]}
    assert status["stored"] is None
    assert "No ClickHouse runs" in status["store_error"]
    assert [each["name"] for each in status["services"] if each["is_running"]] == ["collector"]


def test_nothing_is_said_to_programs_too(data_dir: DataDir, tmp_path: Path) -> None:
    for place, exists in ((data_dir.path, True), (tmp_path / "nowhere", False)):
        completed = CliRunner().invoke(app, ["status", "--data-dir", str(place), "--json"])
        assert completed.exit_code == 3
        assert json.loads(completed.stdout)["exists"] is exists


def test_a_control_database_out_of_reach_leaves_the_rest_of_the_status(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_CONTROL_URL", "postgresql://me:secret@127.0.0.1:1/jobs")
    with service(data_dir, "collector", COLLECTOR):
        printed = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path)])
        as_json = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path), "--json"])
    assert (printed.exit_code, as_json.exit_code) == (0, 0)
    assert "accepted 7 (logs 2, traces 5), since the collector's start" in printed.stdout
    assert "jobs: The control database postgresql://127.0.0.1:1/jobs is unreachable" in printed.stdout
    status = json.loads(as_json.stdout)
    assert (status["jobs"], "is unreachable" in status["jobs_error"]) == (None, True)
    assert "secret" not in printed.stdout + as_json.stdout


def test_each_pipeline_of_the_control_database_is_shown(data_dir: DataDir) -> None:
    with service(data_dir, "collector", COLLECTOR), Sharing.joined(data_dir), Sharing.joined(data_dir):
        printed = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path)])
        as_json = CliRunner().invoke(app, ["status", "--data-dir", str(data_dir.path), "--json"])
    assert printed.output.count(f"pipeline {os.getpid()}  idle, 0 spans since ") == 2
    assert [each["process"] for each in json.loads(as_json.stdout)["pipelines"]] == [str(os.getpid())] * 2
