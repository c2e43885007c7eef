"""A backup is complete or absent, and a restore equals what was backed up."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from spanloop.administration.backup import Source, backup
from spanloop.administration.backup_manifest import NAME, BackupManifest, read_manifest
from spanloop.administration.restore import Targets, restore
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, SpanloopError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import SHARED_DIR_ENV
from spanloop.store import Store, connect
from spanloop.store.client import Address
from spanloop.store.discovery import embedded_address

from ...conftest import MEMORY_CAP_BYTES, Rows
from ...stored_states import insert_transitions

FILES = {
    "jobs/j1/log.txt": "printed",
    "jobs/j1/dataset.parquet": "rows",
    "jobs/j1/checkpoints/global_step_1": "scratch",
    "models/tiny/v1/config.json": "{}",
    "models/tiny/v1.serving/config.json": "{}",
    "gateway/admin.token": "secret",
    "gateway/rejected.jsonl": "{}\n",
    "gateway/responses/resp_1.json": "{}",
    "redaction.toml": "builtin = []",
    "users.json": '{"users": []}',
    "audit.jsonl": "{}\n",
    "spanloop.toml": "[services]",
}


def nothing(*_: object) -> None: ...


def local(store: Store) -> Source:
    """An embedded server whose spools are empty."""
    return Source(store, is_external=False, drain=nothing)


def insert(store: Store, table: str, rows: Rows) -> None:
    """Sparse rows, in several parts."""
    for row in rows:
        store.insert(table, pl.DataFrame([row], schema=store.schema(table)))


def fill(data_dir: DataDir, store: Store) -> None:
    day_ns = 86_400 * 10**9
    insert(
        store,
        "otel_traces",
        [
            {"TraceId": f"{n:032x}", "SpanId": f"{n:016x}", "Timestamp": n * day_ns, "SpanAttributes": {"n": str(n)}}
            for n in range(20_000, 20_003)
        ],
    )
    insert(store, "scores", [{"score_id": f"s{n}", "name": "reward", "value": 0.5, "label": "é"} for n in range(4)])
    step = {"episode_id": "e", "revision": 1, "step": 0, "state": '["a","é"]', "prompt_token_ids": [1]}
    insert_transitions(store, pl.DataFrame([step], schema=store.schema("transitions")))
    for name, content in FILES.items():
        path = data_dir.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    KeyRing(data_dir).create("laptop", [Scope.INGEST])
    with closing(sqlite3.connect(data_dir.control_db)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE jobs (id TEXT)")
        database.execute("INSERT INTO jobs VALUES ('j1')")
        database.commit()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataDir, Store]]:
    """A data directory with data of every kind and a running server."""
    directory = DataDir(tmp_path_factory.mktemp("source")).open()
    with EmbeddedClickHouse(directory, memory_cap_bytes=MEMORY_CAP_BYTES), connect(directory) as store:
        fill(directory, store)
        yield directory, store


@pytest.fixture(scope="module")
def stored(source: tuple[DataDir, Store], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, BackupManifest]:
    """A backup of it; one score arrives during the drain and one afterwards."""
    directory, store = source
    place = tmp_path_factory.mktemp("backups") / "monday"

    def drain() -> None:
        insert(store, "scores", [{"score_id": "while draining", "name": "reward", "value": 1.0}])

    source_of = Source(store, is_external=False, drain=drain)
    manifest = backup(directory, source_of, place, models=True, on_progress=nothing)
    insert(store, "scores", [{"score_id": "later", "name": "reward", "value": 1.0}])
    return place, manifest


def test_a_restore_equals_what_was_backed_up(stored: tuple[Path, BackupManifest], tmp_path: Path) -> None:
    place, manifest = stored
    assert (manifest.tables["otel_traces"], manifest.tables["scores"]) == (3, 5)
    assert (manifest.tables["episode_messages"], manifest.tables["transition_rows"]) == (2, 1)
    assert place.stat().st_mode & 0o077 == 0
    data_dir = DataDir(tmp_path / "restored")
    data_dir.path.mkdir()
    assert restore(place, data_dir, on_progress=nothing) == manifest
    assert [path.name for path in tmp_path.iterdir()] == ["restored"]
    with connect(data_dir.open(), start=True) as store:
        spans = store.query("trace_spans", trace_id=f"{20_001:032x}")
        assert spans["SpanAttributes"].to_list() == [{"n": "20001"}]
        scores = store.query("scores_by_id", score_ids=["s0", "while draining", "later"])
        assert sorted(scores["score_id"]) == ["s0", "while draining"]
        steps = {"episode_id": "e", "revision": 1, "first_step": 0, "last_step": 0}
        assert store.query("dashboard_messages", **steps)["state"].to_list() == ['["a","é"]']
        insert(store, "scores", [{"score_id": "new", "name": "reward", "value": 1.0}])
    restored_files = {name: content for name, content in FILES.items() if (data_dir.path / name).exists()}
    assert sorted(set(FILES) - set(restored_files)) == [
        "gateway/admin.token", "jobs/j1/checkpoints/global_step_1", "models/tiny/v1.serving/config.json",
        "spanloop.toml",
    ]  # fmt: skip
    assert all((data_dir.path / name).read_text() == content for name, content in restored_files.items())
    assert [key.name for key in KeyRing(data_dir).list()] == ["laptop"]
    with closing(sqlite3.connect(data_dir.control_db)) as database:
        assert database.execute("SELECT id FROM jobs").fetchall() == [("j1",)]


def test_the_destination_must_be_new(stored: tuple[Path, BackupManifest], source: tuple[DataDir, Store]) -> None:
    place, _ = stored
    directory, store = source
    for destination, message in ((place, "not empty"), (directory.path / "backups", "within its own data directory")):
        with pytest.raises(ConfigurationError, match=message):
            backup(directory, local(store), destination, models=False, on_progress=nothing)
    with pytest.raises(ConfigurationError, match="is not empty"):
        restore(place, directory, on_progress=nothing)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("files/keys.json", b"{}", "keys.json has 2 bytes and not the content"),
        ("files/keys.json", None, "lacks files/keys.json"),
        ("files/more", b"", "has files/more, which its manifest does not name"),
        (NAME, None, "is not a complete backup"),
        (NAME, b"{}", "is not a manifest that spanloop .* can read"),
        (NAME, {"format": 2, "spanloop": "9.1"}, "has format 2, created by spanloop 9.1"),
    ],
)
def test_a_damaged_backup_is_not_restored(
    stored: tuple[Path, BackupManifest],
    tmp_path: Path,
    name: str,
    content: bytes | dict[str, object] | None,
    message: str,
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["/bin/cp", "-a", str(stored[0]), str(copy)], check=True)
    if content is None:
        (copy / name).unlink()
    elif isinstance(content, bytes):
        (copy / name).write_bytes(content)
    else:
        (copy / name).write_text(json.dumps(json.loads((copy / name).read_text()) | content))
    with pytest.raises(DataDirectoryError, match=message):
        restore(copy, DataDir(tmp_path / "restored"), on_progress=nothing)
    assert not (tmp_path / "restored").exists()


def test_a_restore_with_missing_rows_fails(stored: tuple[Path, BackupManifest], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["/bin/cp", "-a", str(stored[0]), str(copy)], check=True)
    manifest = json.loads((copy / NAME).read_text())
    manifest["tables"]["scores"] += 1
    (copy / NAME).write_text(json.dumps(manifest))
    with pytest.raises(DataDirectoryError, match="scores has 5 rows after it was restored"):
        restore(copy, DataDir(tmp_path / "restored"), on_progress=nothing)
    assert not (tmp_path / "restored").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from spanloop.foundation.paths import DataDir
from spanloop.store import connect
from spanloop.administration import store_snapshot
from spanloop.administration.backup import Source, backup
from spanloop.administration.restore import restore
import {module} as module

if {step!r}:
    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)
    for part in (module, store_snapshot):
        if hasattr(part, {step!r}):
            setattr(part, {step!r}, die)
place, data_dir = Path({place!r}), DataDir({data_dir!r})
if {restores}:
    restore(place, data_dir, on_progress=lambda *_: None)
else:
    with connect(data_dir) as store:
        source = Source(store, is_external=False, drain=lambda: None)
        backup(data_dir, source, place, models=True, on_progress=lambda *_: None)
"""


def run(step: str, place: Path, data_dir: Path, *, restores: bool) -> int:
    """Run one backup or restore in a child process, killed when it calls the function ``step``."""
    module = "spanloop.administration.restore" if restores else "spanloop.administration.backup"
    code = KILLED.format(module=module, step=step, place=str(place), data_dir=str(data_dir), restores=restores)
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=200).returncode


def test_a_killed_backup_leaves_no_backup(source: tuple[DataDir, Store], tmp_path: Path) -> None:
    place = tmp_path / "monday"
    for step in ("run_in_server", "describe_files", "sync_directory"):
        assert run(step, place, source[0].path, restores=False) == -signal.SIGKILL
        assert not place.exists()
        assert [path.name for path in tmp_path.iterdir()] == [".monday.partial"]
        if step != "sync_directory":
            with pytest.raises(DataDirectoryError, match="is not a complete backup"):
                read_manifest(tmp_path / ".monday.partial")
    assert run("", place, source[0].path, restores=False) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["monday"]
    assert read_manifest(place).tables["otel_traces"] == 3


@pytest.mark.slow
def test_a_killed_restore_leaves_no_data_directory(stored: tuple[Path, BackupManifest], tmp_path: Path) -> None:
    target = tmp_path / "restored"
    for step in ("check_files", "place_files", "linked", "run_in_server", "migrate", "move_shared", "sync_directory"):
        assert run(step, stored[0], target, restores=True) == -signal.SIGKILL
        assert not target.exists()
    assert run("", stored[0], target, restores=True) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["restored"]
    with connect(DataDir(target), start=True) as store:
        assert store.query("store_counts").filter(pl.col("table_name") == "scores")["row_count"].to_list() == [5]


def test_a_shared_folder_can_keep_its_own_keys(
    stored: tuple[Path, BackupManifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(SHARED_DIR_ENV, str(shared))
    data_dir = DataDir(tmp_path / "restored")
    KeyRing(data_dir).create("stack", [Scope.READ])
    with pytest.raises(ConfigurationError, match="--keep-keys"):
        restore(stored[0], data_dir, on_progress=nothing)
    restore(stored[0], data_dir, on_progress=nothing, keep_keys=True)
    assert [key.name for key in KeyRing(data_dir).list()] == ["stack"]
    assert (shared / "jobs/j1/log.txt").read_text() == FILES["jobs/j1/log.txt"]
    assert not (data_dir.path / "keys.json").exists()


@pytest.mark.slow
def test_an_interrupted_restore_into_another_clickhouse_goes_on_and_touches_no_other_rows(
    stored: tuple[Path, BackupManifest], tmp_path: Path, address: Address
) -> None:
    place, manifest = stored
    data_dir = DataDir(tmp_path / "restored")
    elsewhere = Targets(store=lambda: Store.open(address))

    def interrupt(action: str, *_: int) -> None:
        if action == "otel_traces":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restore(place, data_dir, on_progress=interrupt, targets=elsewhere)
    assert not data_dir.path.exists()
    restore(place, data_dir, on_progress=nothing, targets=elsewhere)
    assert not data_dir.clickhouse.exists()
    with Store.open(address) as store:
        counts = {str(name): int(rows) for name, rows, _ in store.query("store_counts").iter_rows()}
        assert {name: counts[name] for name in ("otel_traces", "scores")} == {"otel_traces": 3, "scores": 5}
    other = DataDir(tmp_path / "other")
    assert manifest.tables["scores"] == 5
    with pytest.raises(ConfigurationError, match="has rows already"):
        restore(_older(place, tmp_path), other, on_progress=nothing, targets=elsewhere)
    assert not other.path.exists()


def _older(place: Path, folder: Path) -> Path:
    """Another backup with the same content."""
    copy = folder / "tuesday"
    subprocess.run(["/bin/cp", "-a", str(place), str(copy)], check=True)
    manifest = json.loads((copy / NAME).read_text())
    (copy / NAME).write_text(json.dumps(manifest | {"created_at": "2026-01-01T00:00:00+00:00"}))
    return copy


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_reported(
    source: tuple[DataDir, Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        descriptor = os.open("/dev/full", os.O_WRONLY)
        try:
            os.write(descriptor, b"x")
        finally:
            os.close(descriptor)

    monkeypatch.setattr("shutil.copy2", full)
    with pytest.raises(SpanloopError, match="No space is left"):
        backup(source[0], local(source[1]), tmp_path / "monday", models=True, on_progress=nothing)
    assert not (tmp_path / "monday").exists()


def test_a_backup_holds_no_password(stored: tuple[Path, BackupManifest], source: tuple[DataDir, Store]) -> None:
    secret = embedded_address(source[0]).password.encode()
    assert not [path for path in stored[0].rglob("*") if path.is_file() and secret in path.read_bytes()]
