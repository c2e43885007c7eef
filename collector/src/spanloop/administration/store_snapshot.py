"""The part of a backup that ClickHouse writes: its own BACKUP, by the embedded server.

The rows of another ClickHouse are copied into a temporary embedded server first. So a backup has one form, whatever the
store is, and needs no more of another server than SELECT.

Invariant: the snapshot has no half of a conversion, because the caller pauses the pipeline meanwhile.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.config import backups_folder
from spanloop.embedded_clickhouse.lock import is_locked
from spanloop.foundation.errors import DataDirectoryError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.store.discovery import embedded_address
from spanloop.store.store import Store

from . import TransferProgress
from .copying import copy_while_written
from .files import remove
from .retention import retention, set_retention

LINK: Final = "current"
"""Name of the link to the backup in the statements ``queries/store_backup_*.sql``."""
SCRATCH: Final = ".scratch"
"""Folder of the temporary server."""
_POLL_S: Final = 0.1
_WAIT_S: Final = 60.0


class Queries(Protocol):
    """The method of `Store` that this module calls."""

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        """Run a named query and return its result."""
        ...


def snapshot_embedded(data_dir: DataDir, store: Store, folder: Path, on_progress: TransferProgress) -> None:
    """Write the snapshot of the running embedded server into a folder.

    Raises:
        StoreError: ClickHouse rejected it; the message gives the reason.
        DataDirectoryError: No space is left.
    """
    _wait_for_running_backup(store, on_progress)
    with linked(data_dir, folder):
        run_in_server(store, "store_backup_start", "backing up ClickHouse", on_progress)


def snapshot_external(store: Store, folder: Path, on_progress: TransferProgress) -> None:
    """Copy a store on another server, and write the snapshot of the copy into a folder; it raises as the above.

    Needs twice the space of the snapshot meanwhile.
    """
    scratch = DataDir(folder / SCRATCH)
    with EmbeddedClickHouse(scratch), Store.open(embedded_address(scratch)) as copy:
        copy_while_written(store, copy, on_progress=on_progress)
        set_retention(copy, retention(store))
        snapshot_embedded(scratch, copy, folder, on_progress)
    remove(scratch.path)


def wait_until_unused(data_dir: DataDir) -> None:
    """Wait for the temporary server of a killed command, which stops automatically.

    Raises:
        DataDirectoryError: Another command uses it.
    """
    deadline_s = time.monotonic() + _WAIT_S
    while is_locked(data_dir):
        if time.monotonic() > deadline_s:
            raise DataDirectoryError(
                f"Another backup or restore uses {data_dir.path}.",
                next_step="Wait until it ends, or stop it, then try again.",
            )
        time.sleep(_POLL_S)


def _wait_for_running_backup(store: Queries, on_progress: TransferProgress) -> None:
    """Wait for a backup whose command was killed: it continues in the server and would write into the new folder."""
    while not store.query("store_backup_running").is_empty():
        on_progress("waiting for an interrupted backup", 0, 0)
        time.sleep(_POLL_S)


@contextmanager
def linked(data_dir: DataDir, folder: Path) -> Generator[None]:
    """Link a folder into the embedded server's backups folder while the context is active."""
    link = backups_folder(data_dir) / LINK
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(folder, target_is_directory=True)
    try:
        yield
    finally:
        link.unlink(missing_ok=True)


def run_in_server(store: Queries, query_name: str, doing: str, on_progress: TransferProgress) -> None:
    """Start a BACKUP or RESTORE statement in the server and wait until it ends.

    Raises:
        StoreError: The statement failed.
        DataDirectoryError: No space is left.
    """
    try:
        identity = str(store.query(query_name)["id"][0])
    except StoreError as error:
        if "backups.allowed_path" in error.what:
            raise StoreError(
                "The running ClickHouse was started by an older spanloop, without the setting for backups.",
                next_step="Stop spanloop up and start it again.",
            ) from error
        raise
    while True:
        operation = store.query("store_backup_progress", id=identity).row(0, named=True)
        if operation["status"] in {"BACKUP_CREATED", "RESTORED"}:
            return
        if operation["status"] not in {"CREATING_BACKUP", "RESTORING"}:
            reason = " ".join(str(operation["error"]).split(", Stack trace")[0].split()) or str(operation["status"])
            if "No space left" in reason or "NOT_ENOUGH_SPACE" in reason:
                raise DataDirectoryError(
                    f"No space is left while {doing}: {reason}", next_step="Free disk space, then run it again."
                )
            raise StoreError(f"ClickHouse failed while {doing}: {reason}")
        on_progress(doing, int(operation["read_bytes"]), int(operation["size_bytes"]))
        time.sleep(_POLL_S)
