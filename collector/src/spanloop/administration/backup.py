"""Back a data directory up while its services run: one folder, complete or absent.

Invariant: all data that was acknowledged before the backup began is in it, once. The spools are drained before, not
copied; ClickHouse makes its own consistent snapshot; the control database is copied before the files that it names. The
folder is renamed when all of its files are hashed and on disk: a kill at any moment leaves only a folder with
``.partial`` in its name.
"""

import fcntl
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, Protocol

import polars as pl

from spanloop.datadir import DataDir, disk_error, sync_directory
from spanloop.embedded_clickhouse.config import backups_folder
from spanloop.semconv.errors import AlreadyRunningError, ConfigurationError, DataDirectoryError, StoreError
from spanloop.store.store import Store

from . import TransferProgress
from .backup_manifest import FILES, FORMAT, STORE, BackupManifest, describe_files, rows_by_table, write_manifest

LINK: Final = "current"
"""Name of the link to the backup in the statements ``queries/store_backup_*.sql``."""
_POLL_S: Final = 0.1
_FILES: Final = ("keys.json", "redaction.toml", "gateway/rejected.jsonl")
_JOB_FILES: Final = ("log.txt", "dataset.parquet", "manifest.json")
"""All other files in a job's folder are scratch data."""
_LEFT_OUT: Final = (
    "logs, run files and passwords of services",
    "scratch data of jobs (checkpoints, metrics files): their results are in the store and the registry",
)
_NO_MODELS: Final = "model folders (--models)"


class Queries(Protocol):
    """The method of `Store` that this module calls."""

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        """Run a named query and return its result."""
        ...


def backup(
    data_dir: DataDir,
    store: Store,
    destination: Path,
    *,
    models: bool,
    drain: Callable[[], None],
    on_progress: TransferProgress,
    save_control: Callable[[Path], None] | None = None,
) -> BackupManifest:
    """Back a data directory up.

    Args:
        data_dir: The data directory.
        store: Its embedded ClickHouse.
        destination: A folder that does not exist, or is empty.
        models: Include the model folders.
        drain: Waits until the records in the spools of the collector and of a running gateway are in the store.
        on_progress: Called after every step.
        save_control: Writes the control database into a SQLite file; None copies the one in the data directory.

    Raises:
        ConfigurationError: The destination is not empty, or is within the data directory.
        AlreadyRunningError: Another backup of this data directory is running.
        DataDirectoryError: The destination is not writable, or no space is left.
        StoreError: ClickHouse rejected the backup; the message gives the reason.
    """
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    destination = destination.expanduser().absolute()
    _check_destination(data_dir, destination)
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        with _backup_lock(data_dir):
            drain()
            _wait_for_running_backup(store, on_progress)
            remove(partial)
            partial.mkdir(mode=0o700, parents=True)
            with linked(data_dir, partial):
                run_in_server(store, "store_backup_start", "backing up ClickHouse", on_progress)
            (partial / FILES).mkdir(mode=0o700)
            _save_control(data_dir, partial / FILES, save_control)
            _copy_files(data_dir, partial / FILES, models=models, on_progress=on_progress)
            manifest = BackupManifest(
                format=FORMAT,
                spanloop=version("spanloop"),
                created_at=started_at,
                tables=rows_by_table(partial / STORE),
                has_models=models,
                left_out=_LEFT_OUT if models else (*_LEFT_OUT, _NO_MODELS),
                files=describe_files(partial, on_progress),
            )
            write_manifest(partial, manifest)
            for folder, _, _ in os.walk(partial):
                sync_directory(Path(folder))
            partial.replace(destination)
            sync_directory(destination.parent)
    except OSError as error:
        raise disk_error(destination, error) from error
    return manifest


def _check_destination(data_dir: DataDir, destination: Path) -> None:
    if destination.is_relative_to(data_dir.path):
        raise ConfigurationError(
            f"The backup {destination} would be within its own data directory {data_dir.path}.",
            next_step="Name a folder elsewhere, preferably on another disk.",
        )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ConfigurationError(
            f"{destination} exists and is not empty.", next_step="Name a new folder for each backup."
        )


@contextmanager
def _backup_lock(data_dir: DataDir) -> Generator[None]:
    descriptor = os.open(data_dir.run / "backup.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise AlreadyRunningError(f"Another backup of {data_dir.path} is running.") from error
    finally:
        os.close(descriptor)


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


def _save_control(data_dir: DataDir, target: Path, save_control: Callable[[Path], None] | None) -> None:
    if save_control is not None:
        save_control(target / data_dir.control_db.name)
    elif data_dir.control_db.exists():
        _copy_database(data_dir.control_db, target / data_dir.control_db.name)


def _copy_files(data_dir: DataDir, target: Path, *, models: bool, on_progress: TransferProgress) -> None:
    names = list(_names(data_dir, models=models))
    total = sum(size for _, size in names)
    completed_bytes = 0
    for name, size_bytes in names:
        copy = target / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A job can delete its own files meanwhile.
        with suppress(FileNotFoundError):
            shutil.copy2(data_dir.path / name, copy)
        completed_bytes += size_bytes
        on_progress("copying files", completed_bytes, total)


def _names(data_dir: DataDir, *, models: bool) -> Iterator[tuple[str, int]]:
    """Yield path and size of the files to back up."""
    paths = [data_dir.path / name for name in _FILES]
    paths += [path for name in _JOB_FILES for path in sorted(data_dir.jobs.glob(f"*/{name}"))]
    if data_dir.generations.exists() and data_dir.running("gateway") is None:
        # The ids of spooled captures prevent duplicates of captures that are in the store already.
        paths += sorted(data_dir.generations.rglob("*"))
    if models:
        paths.append(data_dir.gateway / "deployment.json")
        for version_folder in sorted(data_dir.models.glob("*/v*")):
            if not version_folder.name.endswith(".serving"):
                paths += sorted(version_folder.rglob("*"))
    for path in paths:
        if path.is_file():
            yield str(path.relative_to(data_dir.path)), path.stat().st_size


def _copy_database(source: Path, target: Path) -> None:
    """Copy the database with SQLite's backup API, which is consistent during writes."""
    with (
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        try:
            live.backup(copy)
        except sqlite3.Error as error:
            raise DataDirectoryError(
                f"{source} cannot be backed up: {error}.",
                next_step="Free disk space, or check the integrity of the database.",
            ) from error


def remove(folder: Path) -> None:
    """Remove a folder that an interrupted run has left."""
    if folder.exists():
        shutil.rmtree(folder)
