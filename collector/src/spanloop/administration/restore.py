"""A data directory out of a backup: checked, whole or not there.

Invariant: the backup's files are those that were written, every table has as many rows as were backed up, and only then
the directory gets its name. A kill at any moment leaves a folder with ``.restoring`` in its name, and nothing else.
"""

import shutil
import time
from collections.abc import Generator
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

from .backup import linked, remove, run_in_server
from .backup_manifest import FILES, STORE, BackupManifest, Progress, check_files, read_manifest

_STOP_MERGES: Final = "SYSTEM STOP MERGES"
"""Not a named query, because those are all run on a server that others use. Merged rows could not be counted."""
_WAIT_S: Final = 60.0


class _Server:
    """The part of `Store` that a database without tables has."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"query {query_name!r}", parameters=query.bind(parameters))

    def stop_merges(self) -> None:
        self._connection.command(_STOP_MERGES, doing="stopping merges")


def restore(source: Path, data_dir: DataDir, *, progress: Progress) -> BackupManifest:
    """Make a data directory of a backup.

    Args:
        source: A folder that `backup` made.
        data_dir: One that does not exist, or is empty.
        progress: Told of every step.

    Raises:
        ConfigurationError: The data directory is not empty.
        DataDirectoryError: The backup is none, of another version or damaged; or no space is left.
        StoreError: ClickHouse refused, or its tables are of a newer spanloop.
    """
    source = source.expanduser().absolute()
    target = data_dir.path
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(
            f"The data directory {target} is not empty, so nothing is restored into it.",
            next_step="Name a new one with --data-dir, or move that one away.",
        )
    manifest = read_manifest(source)
    staging = DataDir(target.with_name(f".{target.name}.restoring"))
    try:
        check_files(source, manifest, progress)
        _wait_until_unused(staging)
        remove(staging.path)
        staging.open()
        _copy(source / FILES, staging.path, progress)
        _restore_tables(source, staging, manifest, progress)
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
    """The server of a restore that was killed ends by itself."""
    deadline_s = time.monotonic() + _WAIT_S
    while is_locked(staging):
        if time.monotonic() > deadline_s:
            raise DataDirectoryError(
                f"Another restore works on {staging.path}.", next_step="Let it end, or stop it, then run this again."
            )
        time.sleep(0.1)


def _copy(source: Path, target: Path, progress: Progress) -> None:
    files = [path for path in sorted(source.rglob("*")) if path.is_file()]
    total, done = sum(path.stat().st_size for path in files), 0
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copy2(path, copy)
        done += path.stat().st_size
        progress("copying files", done, total)


def _restore_tables(source: Path, staging: DataDir, manifest: BackupManifest, progress: Progress) -> None:
    with _server(staging) as server, linked(staging, source):
        run_in_server(server, "store_backup_restore_tables", "making tables", progress)
        server.stop_merges()
        run_in_server(server, "store_backup_restore_rows", f"restoring {STORE}", progress)
        counts = server.query("store_backup_counts").iter_rows()
        found = {str(table): int(rows) for table, rows in counts if rows}
        if found != dict(manifest.tables):
            wrong = min(set(found.items()) ^ set(manifest.tables.items()))[0]
            raise DataDirectoryError(
                f"Table {wrong} has {found.get(wrong, 0):,} rows after it was restored from {source}, expected "
                f"{manifest.tables.get(wrong, 0):,}.",
                next_step="Nothing was restored. Run it again; if it says so again, take another backup.",
            )
        migrate(embedded_address(staging))


@contextmanager
def _server(staging: DataDir) -> Generator[_Server]:
    with EmbeddedClickHouse(staging):
        address = replace(embedded_address(staging), database="default")
        with closing(Connection(address)) as connection:
            yield _Server(connection)
