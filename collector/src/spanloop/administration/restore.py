"""Restore a data directory from a backup: verified, and complete or absent.

Invariant: the directory is renamed only after all hashes of the backup are verified and every table has as many rows
as were backed up. A kill at any moment leaves only a folder with ``.restoring`` in its name.
"""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.datadir import DataDir, disk_error, sync_directory
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.lock import is_locked
from spanloop.semconv.errors import ConfigurationError, DataDirectoryError
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.migrate import migrate
from spanloop.store.named_queries import named_query

from . import TransferProgress
from .backup import linked, remove, run_in_server
from .backup_manifest import FILES, STORE, BackupManifest, check_files, read_manifest

_STOP_MERGES: Final = "SYSTEM STOP MERGES"
"""Not a named query, because those run on shared servers. Stops merges, which would change the counts of rows."""
_WAIT_S: Final = 60.0


class _Server:
    """The part of `Store` that works on a database without tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"query {query_name!r}", parameters=query.bind(parameters))

    def stop_merges(self) -> None:
        self._connection.command(_STOP_MERGES, doing="stopping merges")


def restore(
    source: Path,
    data_dir: DataDir,
    *,
    on_progress: TransferProgress,
    load_control: Callable[[Path], None] | None = None,
) -> BackupManifest:
    """Restore a backup into a new data directory.

    Args:
        source: A folder that `backup` wrote.
        data_dir: A data directory that does not exist, or is empty.
        on_progress: Called after every step.
        load_control: Copies a SQLite file into the control database; None leaves the file in the data directory.

    Raises:
        ConfigurationError: The data directory is not empty, or `load_control` rejects the file.
        DataDirectoryError: The backup is incomplete, damaged or of another version, or no space is left.
        StoreError: ClickHouse rejected a statement, or the tables are of a newer spanloop.
    """
    source = source.expanduser().absolute()
    target = data_dir.path
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(
            f"The data directory {target} is not empty, so nothing was restored.",
            next_step="Name a new directory with --data-dir, or move this one.",
        )
    manifest = read_manifest(source)
    staging = DataDir(target.with_name(f".{target.name}.restoring"))
    try:
        check_files(source, manifest, on_progress)
        _wait_until_unused(staging)
        remove(staging.path)
        staging.open()
        _copy(source / FILES, staging.path, on_progress)
        if load_control is not None and staging.control_db.exists():
            load_control(staging.control_db)
            staging.control_db.unlink()
        _restore_tables(source, staging, manifest, on_progress)
        for folder in (staging.run, staging.logs, staging.clickhouse_conf):
            remove(folder)
        staging.open()
        sync_directory(staging.path)
        staging.path.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        raise disk_error(target, error) from error
    return manifest


def _wait_until_unused(staging: DataDir) -> None:
    """Wait for the server of a killed restore, which stops automatically."""
    deadline_s = time.monotonic() + _WAIT_S
    while is_locked(staging):
        if time.monotonic() > deadline_s:
            raise DataDirectoryError(
                f"Another restore uses {staging.path}.", next_step="Wait until it ends, or stop it, then try again."
            )
        time.sleep(0.1)


def _copy(source: Path, target: Path, on_progress: TransferProgress) -> None:
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    total, completed_bytes = sum(path.stat().st_size for path in files), 0
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(path, copy)
        completed_bytes += path.stat().st_size
        on_progress("copying files", completed_bytes, total)


def _restore_tables(source: Path, staging: DataDir, manifest: BackupManifest, on_progress: TransferProgress) -> None:
    with _server(staging) as server, linked(staging, source):
        run_in_server(server, "store_backup_restore_tables", "creating tables", on_progress)
        server.stop_merges()
        run_in_server(server, "store_backup_restore_rows", f"restoring {STORE}", on_progress)
        counts = server.query("store_backup_counts").iter_rows()
        restored = {str(table): int(rows) for table, rows in counts if rows}
        if restored != dict(manifest.tables):
            table = min(set(restored.items()) ^ set(manifest.tables.items()))[0]
            raise DataDirectoryError(
                f"Table {table} has {restored.get(table, 0):,} rows after it was restored from {source}, expected "
                f"{manifest.tables.get(table, 0):,}.",
                next_step="Nothing was restored. Run it again; if the error stays, use another backup.",
            )
        migrate(embedded_address(staging))


@contextmanager
def _server(staging: DataDir) -> Generator[_Server]:
    with EmbeddedClickHouse(staging):
        address = replace(embedded_address(staging), database="default")
        with closing(Connection(address)) as connection:
            yield _Server(connection)
