"""A backup in object storage is complete or absent, and its restore equals what was backed up."""

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.administration.backup import backup
from spanloop.administration.backup_manifest import BackupManifest
from spanloop.administration.backup_objects import received_backup, send_backup
from spanloop.administration.restore import restore
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.remote import Remote
from spanloop.foundation.paths import DataDir
from spanloop.store import Store, connect

from ...conftest import MEMORY_CAP_BYTES
from ...object_server import Fault, ObjectServer, object_server
from .test_backup import fill, local, nothing


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectServer]:
    with object_server() as running:
        yield running


def rows(store: Store) -> dict[str, int]:
    counts = store.query("store_counts")
    return {str(row["table_name"]): int(row["row_count"]) for row in counts.iter_rows(named=True) if row["row_count"]}


def test_a_backup_survives_faults_and_restores_equal_tables(
    s3: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanloop.foundation.objects.remote._PAUSES_S", (0.01,) * 3)
    directory = DataDir(tmp_path / "source").open()
    work = tmp_path / "work"
    with (
        s3.used("backups") as url,
        EmbeddedClickHouse(directory, memory_cap_bytes=MEMORY_CAP_BYTES),
        connect(directory) as store,
    ):
        fill(directory, store)

        def make(folder: Path) -> BackupManifest:
            return backup(directory, local(store), folder, models=True, on_progress=nothing)

        monday = f"{url}/monday"
        s3.proxy.fail(Fault.SERVER_ERROR, "PUT .*/monday/manifest.json", times=1000)
        with pytest.raises(ObjectStorageError, match=r"Writing monday/manifest\.json at s3://spanloop-test/backups"):
            send_backup(monday, work, make, nothing)
        assert not work.exists()
        with (
            pytest.raises(ObjectStorageError, match="There is no complete object monday"),
            received_backup(monday, work, nothing),
        ):
            pass
        s3.proxy.rules.clear()
        s3.proxy.requests.clear()
        for fault in (Fault.SERVER_ERROR, Fault.RESET, Fault.LOST):
            s3.proxy.fail(fault, "PUT .*/files/")
        manifest = send_backup(monday, work, make, nothing)
        with pytest.raises(ConfigurationError, match="monday exists"):
            send_backup(monday, work, make, nothing)
        before = rows(store)
        assert len(s3.proxy.sent("PUT .*/files/")) < len(manifest.files)
        s3.proxy.fail(Fault.TRUNCATED, "GET .*/files/", times=2)
        restored = DataDir(tmp_path / "restored")
        with received_backup(monday, work, nothing) as folder:
            assert restore(folder, restored, on_progress=nothing) == manifest
        assert not work.exists()
    with connect(restored.open(), start=True) as store:
        assert rows(store) == before
    assert stat.S_IMODE(restored.keys.stat().st_mode) == 0o600


def test_a_damaged_backup_is_named(s3: ObjectServer, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    with s3.used("damaged") as url:
        manifest = open_store(url).put("monday", {"manifest.json": folder / "manifest.json"})
        Remote(url).write(next(iter(manifest.blobs)), b"[]")
        with (
            pytest.raises(ObjectStorageError, match=r"manifest\.json of the object monday at .* got SHA-256"),
            received_backup(f"{url}/monday", tmp_path / "work", nothing),
        ):
            pass
        shutil.rmtree(tmp_path / "work")
    with pytest.raises(ConfigurationError, match="does not name a backup"), received_backup("s3://", folder, nothing):
        pass
