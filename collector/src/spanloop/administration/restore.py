"""Restore a data directory from a backup: verified, and complete or absent.

Invariant: the directory is renamed only after all hashes of the backup are verified and every table has as many rows
as were backed up. A kill at any moment leaves only a folder with ``.restoring`` in its name. What goes elsewhere (rows
into another ClickHouse, jobs into another database, files into a shared folder) goes there before, and only where
nothing else is; the same restore continues after an interruption.
"""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.paths import DataDir, disk_error, sync_directory
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.migrate import migrate
from spanloop.store.named_queries import named_query
from spanloop.store.store import Store

from . import TransferProgress
from .backup_manifest import FILES, STORE, BackupManifest, check_files, read_manifest
from .copying import check_copy, copy_store
from .files import KEY_NAMES, check_shared_places, move_shared, place_files, remove
from .retention import retention, set_retention
from .store_snapshot import linked, run_in_server, wait_until_unused

_STOP_MERGES: Final = "SYSTEM STOP MERGES"
"""Not a named query, because those run on shared servers. Stops merges, which would change the counts of rows."""
_START_MERGES: Final = "SYSTEM START MERGES"
"""Starts them again, with the mutations for which a migration waits."""
_MARK: Final = "restored"
"""Name of the row of ``pipeline_state`` that names the backup whose rows another ClickHouse gets."""


class _Server:
    """The part of `Store` that works on a database without tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"query {query_name!r}", parameters=query.bind(parameters))

    def stop_merges(self) -> None:
        self._connection.command(_STOP_MERGES, doing="stopping merges")

    def start_merges(self) -> None:
        self._connection.command(_START_MERGES, doing="starting merges")


class Targets(NamedTuple):
    """Where a backup goes besides the data directory."""

    store: Callable[[], Store] | None = None
    """Opens another ClickHouse, whose tables have no rows; None restores into the embedded server."""
    renew_tokens: Callable[[Path], None] = lambda _: None
    """Gives the jobs in a control database (SQLite file) new fencing tokens."""
    load_control: Callable[[Path], None] | None = None
    """Copies a SQLite file into the control database; None leaves the file in the data directory."""


_LOCAL: Final = Targets()


def restore(
    source: Path,
    data_dir: DataDir,
    *,
    on_progress: TransferProgress,
    targets: Targets = _LOCAL,
    keep_keys: bool = False,
) -> BackupManifest:
    """Restore a backup into a new data directory.

    Args:
        source: A folder that `backup` wrote.
        data_dir: A data directory that does not exist, or is empty.
        on_progress: Called after every step.
        targets: Where the rest goes.
        keep_keys: Leave API keys and users of the backup out; those of the shared folder stay.

    Raises:
        ConfigurationError: The data directory, the shared folder or the other ClickHouse is not empty, or
            ``load_control`` rejects the file.
        DataDirectoryError: The backup is incomplete, damaged or of another version, or no space is left.
        StoreError: ClickHouse rejected a statement, or the tables are of a newer spanloop.
    """
    source = source.expanduser().absolute()
    target = data_dir.path
    check_empty(data_dir)
    manifest = read_manifest(source)
    kept = KEY_NAMES if keep_keys else ()
    staging = DataDir(target.with_name(f".{target.name}.restoring"))
    try:
        check_files(source, manifest, on_progress)
        check_shared_places(data_dir, manifest, kept)
        wait_until_unused(staging)
        remove(staging.path)
        staging.open()
        place_files(source / FILES, staging.path, on_progress, kept)
        if staging.control_db.exists():
            targets.renew_tokens(staging.control_db)
            if targets.load_control is not None:
                targets.load_control(staging.control_db)
                staging.control_db.unlink()
        _restore_tables(source, staging, manifest, on_progress, targets.store)
        move_shared(data_dir, staging.path)
        for folder in (staging.run, staging.logs, staging.clickhouse_conf):
            remove(folder)
        staging.open()
        sync_directory(staging.path)
        staging.path.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        raise disk_error(target, error) from error
    return manifest


def check_empty(data_dir: DataDir) -> None:
    """Check that a backup can be restored into a data directory.

    Raises:
        ConfigurationError: It has files.
    """
    target = data_dir.path
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(
            f"The data directory {target} is not empty, so nothing was restored.",
            next_step="Name a new directory with --data-dir, or move this one.",
        )


def _restore_tables(
    source: Path,
    staging: DataDir,
    manifest: BackupManifest,
    on_progress: TransferProgress,
    open_external: Callable[[], Store] | None,
) -> None:
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
        server.start_merges()
        migrate(embedded_address(staging))
        if open_external is not None:
            with Store(embedded_address(staging)) as here, open_external() as external:
                _copy_into(here, external, manifest, on_progress)
    if open_external is not None:
        remove(staging.clickhouse)


def _copy_into(restored: Store, external: Store, manifest: BackupManifest, on_progress: TransferProgress) -> None:
    """Copy the restored rows into another ClickHouse, which has no others; an interrupted copy is continued."""
    marks = external.query("pipeline_state", name=_MARK)["value"].to_list()
    filled = external.query("store_counts").filter(pl.col("row_count") > 0)["table_name"].to_list()
    if filled and marks != [manifest.created_at]:
        raise ConfigurationError(
            f"{external.url} has rows already (in {', '.join(filled)}), so nothing was restored.",
            next_step="Let SPANLOOP_CLICKHOUSE_URL name another database; it is created.",
        )
    external.insert("pipeline_state", pl.DataFrame({"name": [_MARK], "value": [manifest.created_at]}))
    check_copy(copy_store(restored, external, on_progress=on_progress), external)
    set_retention(external, retention(restored))


@contextmanager
def _server(staging: DataDir) -> Generator[_Server]:
    with EmbeddedClickHouse(staging):
        address = replace(embedded_address(staging), database="default")
        with closing(Connection(address)) as connection:
            yield _Server(connection)
