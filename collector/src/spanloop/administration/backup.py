"""A backup of a data directory while everything runs: one folder, whole or not there.

Invariant: what was acknowledged before the backup began is in it, once. The spools are not copied, what is in them is
written first; ClickHouse makes its own consistent snapshot; the control database comes before the files that it names.
The folder gets its name when everything in it is hashed and on disk: a kill at any moment leaves a folder with
``.partial`` in its name, and nothing else.
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

from .backup_manifest import (
    FILES,
    FORMAT,
    STORE,
    BackupManifest,
    Progress,
    describe_files,
    rows_by_table,
    write_manifest,
)

LINK: Final = "current"
"""What the statements in ``queries/store_backup_*.sql`` call the place."""
_POLL_S: Final = 0.1
_FILES: Final = ("keys.json", "redaction.toml", "gateway/rejected.jsonl")
_OF_JOBS: Final = ("spec.json", "log.txt", "dataset.parquet", "manifest.json")
"""The rest of a job's folder is scratch."""
_LEFT_OUT: Final = (
    "logs, run files and passwords of services",
    "scratch of jobs (checkpoints, metrics files): what came of them is in the store and the registry",
)
_NO_MODELS: Final = "model folders (--models)"


class Queries(Protocol):
    """The part of a `Store` that is asked here."""

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        """The answer of a named query."""
        ...


def backup(
    data_dir: DataDir,
    store: Store,
    destination: Path,
    *,
    models: bool,
    drain: Callable[[], None],
    progress: Progress,
) -> BackupManifest:
    """Back the data directory up.

    Args:
        data_dir: What.
        store: Its embedded ClickHouse.
        destination: A folder that does not exist, or is empty.
        models: Whether the model folders too.
        drain: Lets what waits in the collector's spool, and in a running gateway's, be written to the store.
        progress: Told of every step.

    Raises:
        ConfigurationError: The destination is taken, or within the data directory.
        AlreadyRunningError: Another backup of this data directory is being made.
        DataDirectoryError: No space left, or not writable.
        StoreError: ClickHouse refused; the message says why.
    """
    began = datetime.now(UTC).isoformat(timespec="seconds")
    destination = destination.expanduser().absolute()
    _check_destination(data_dir, destination)
    partial = destination.with_name(f".{destination.name}.partial")
    try:
        with _alone(data_dir):
            drain()
            _wait_for_others(store, progress)
            remove(partial)
            partial.mkdir(mode=0o700, parents=True)
            with linked(data_dir, partial):
                run_in_server(store, "store_backup_start", "backing up ClickHouse", progress)
            _copy_files(data_dir, partial / FILES, models=models, progress=progress)
            manifest = BackupManifest(
                format=FORMAT,
                spanloop=version("spanloop"),
                created_at=began,
                tables=rows_by_table(partial / STORE),
                has_models=models,
                left_out=_LEFT_OUT if models else (*_LEFT_OUT, _NO_MODELS),
                files=describe_files(partial, progress),
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
            f"The backup {destination} would be within the data directory {data_dir.path} that it is of.",
            next_step="Name a folder elsewhere, best on another disk.",
        )
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise ConfigurationError(
            f"{destination} is there already, and not empty.", next_step="Name a new folder for each backup."
        )


@contextmanager
def _alone(data_dir: DataDir) -> Generator[None]:
    descriptor = os.open(data_dir.run / "backup.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise AlreadyRunningError(f"Another backup of {data_dir.path} is being made.") from error
    finally:
        os.close(descriptor)


def _wait_for_others(store: Queries, progress: Progress) -> None:
    """A backup whose command was killed goes on in the server, and would write into the new one's folder."""
    while not store.query("store_backup_running").is_empty():
        progress("waiting for a backup that was broken off", 0, 0)
        time.sleep(_POLL_S)


@contextmanager
def linked(data_dir: DataDir, place: Path) -> Generator[None]:
    """Let the embedded server reach a folder for as long as the block lasts."""
    link = backups_folder(data_dir) / LINK
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(place, target_is_directory=True)
    try:
        yield
    finally:
        link.unlink(missing_ok=True)


def run_in_server(store: Queries, query_name: str, doing: str, progress: Progress) -> None:
    """Start a BACKUP or RESTORE in the server and wait for its end.

    Raises:
        StoreError: It failed.
        DataDirectoryError: No space left.
    """
    try:
        identity = str(store.query(query_name)["id"][0])
    except StoreError as error:
        if "backups.allowed_path" in error.what:
            raise StoreError(
                "The ClickHouse that runs was started by an older spanloop, which did not let it make backups.",
                next_step="Stop spanloop up and start it again.",
            ) from error
        raise
    while True:
        at = store.query("store_backup_progress", id=identity).row(0, named=True)
        if at["status"] in {"BACKUP_CREATED", "RESTORED"}:
            return
        if at["status"] not in {"CREATING_BACKUP", "RESTORING"}:
            said = " ".join(str(at["error"]).split(", Stack trace")[0].split()) or str(at["status"])
            if "No space left" in said or "NOT_ENOUGH_SPACE" in said:
                raise DataDirectoryError(
                    f"No space is left while {doing}: {said}", next_step="Free disk space, then run it again."
                )
            raise StoreError(f"ClickHouse failed while {doing}: {said}")
        progress(doing, int(at["read_bytes"]), int(at["size_bytes"]))
        time.sleep(_POLL_S)


def _copy_files(data_dir: DataDir, target: Path, *, models: bool, progress: Progress) -> None:
    target.mkdir(mode=0o700)
    if data_dir.control_db.exists():
        _copy_database(data_dir.control_db, target / data_dir.control_db.name)
    names = list(_names(data_dir, models=models))
    total = sum(size for _, size in names)
    done = 0
    for name, size_bytes in names:
        copy = target / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # What a job dropped meanwhile is not missed.
        with suppress(FileNotFoundError):
            shutil.copy2(data_dir.path / name, copy)
        done += size_bytes
        progress("copying files", done, total)


def _names(data_dir: DataDir, *, models: bool) -> Iterator[tuple[str, int]]:
    """Paths and sizes of the files that are backed up."""
    found = [data_dir.path / name for name in _FILES]
    found += [path for name in _OF_JOBS for path in sorted(data_dir.jobs.glob(f"*/{name}"))]
    if data_dir.generations.exists() and data_dir.running("gateway") is None:
        # Captures that wait there are told apart by their ids: what is in the store already is not doubled.
        found += sorted(data_dir.generations.rglob("*"))
    if models:
        found.append(data_dir.gateway / "deployment.json")
        for version_folder in sorted(data_dir.models.glob("*/v*")):
            if not version_folder.name.endswith(".serving"):
                found += sorted(version_folder.rglob("*"))
    for path in found:
        if path.is_file():
            yield str(path.relative_to(data_dir.path)), path.stat().st_size


def _copy_database(source: Path, target: Path) -> None:
    """SQLite's own backup: consistent, whoever writes meanwhile."""
    with (
        closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as live,
        closing(sqlite3.connect(target)) as copy,
    ):
        try:
            live.backup(copy)
        except sqlite3.Error as error:
            raise DataDirectoryError(
                f"{source} cannot be backed up: {error}.",
                next_step="Free disk space, or see whether it is whole.",
            ) from error


def remove(folder: Path) -> None:
    """Remove a folder that an earlier try has left."""
    if folder.exists():
        shutil.rmtree(folder)
