"""Back a spanloop up while its roles run: one folder, complete or absent.

Invariant: all data that was acknowledged before the backup began is in it, once, and what refers to something is not
newer than that. The spools are drained before, not copied. ClickHouse makes its own snapshot, while the pipeline
pauses; then the control database is copied, so that rows name no version that it does not know; then the files that the
control database names. The folder is renamed when all of its files are hashed and on disk: a kill at any moment leaves
only a folder with ``.partial`` in its name.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, DataDirectoryError
from spanloop.foundation.paths import DataDir, disk_error, sync_directory
from spanloop.store.store import Store

from . import TransferProgress
from .backup_manifest import FILES, FORMAT, STORE, BackupManifest, describe_files, rows_by_table, write_manifest
from .files import copy_files, remove
from .store_snapshot import SCRATCH, snapshot_embedded, snapshot_external, wait_until_unused

_LEFT_OUT: Final = (
    "logs, run files and passwords of services",
    "spanloop.toml and other settings, which may hold passwords",
    "scratch data of jobs (checkpoints, metrics files) and of runs on tasks: their results are kept",
)
_NO_MODELS: Final = "model folders (--models)"
_PASSES: Final = 3


def _find_none(_saved: Path, _models: Path) -> Sequence[str]:
    return ()


def _collect_nothing(_saved: Path, _files: Path) -> None: ...


class Source(NamedTuple):
    """What is backed up besides the files, and how."""

    store: Store
    is_external: bool
    """Whether the store is not the embedded server of the data directory."""
    drain: Callable[[], None]
    """Waits until the records in the spools of the collector and of a running gateway are in the store."""
    paused_conversion: Callable[[], AbstractContextManager[object]] = nullcontext
    """No conversion writes while this context is active."""
    save_control: Callable[[Path], None] | None = None
    """Writes the control database into a SQLite file; None copies the one in the data directory."""
    find_lost_versions: Callable[[Path, Path], Sequence[str]] = _find_none
    """Returns the versions of a saved control database whose weights are not in a folder of models."""
    collect_objects: Callable[[Path, Path], None] = _collect_nothing
    """Adds what is in object storage to the files of the backup: for a saved control database, to a folder."""


def backup(
    data_dir: DataDir, source: Source, destination: Path, *, models: bool, on_progress: TransferProgress
) -> BackupManifest:
    """Back a data directory up, with its store and its control database.

    Args:
        data_dir: The data directory.
        source: The rest.
        destination: A folder that does not exist, or is empty.
        models: Include the model folders.
        on_progress: Called after every step.

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
            source.drain()
            wait_until_unused(DataDir(partial / SCRATCH))
            remove(partial)
            partial.mkdir(mode=0o700, parents=True)
            on_progress("waiting for the conversion to pause", 0, 0)
            with source.paused_conversion():
                if source.is_external:
                    snapshot_external(source.store, partial, on_progress)
                else:
                    snapshot_embedded(data_dir, source.store, partial, on_progress)
            (partial / FILES).mkdir(mode=0o700)
            lost = _save_control_and_files(data_dir, source, partial / FILES, models=models, on_progress=on_progress)
            manifest = BackupManifest(
                format=FORMAT,
                spanloop=version("spanloop"),
                created_at=started_at,
                tables=rows_by_table(partial / STORE),
                has_models=models,
                left_out=_left_out(lost, models=models),
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


def _left_out(lost: Sequence[str], *, models: bool) -> tuple[str, ...]:
    if not models:
        return (*_LEFT_OUT, _NO_MODELS)
    return (*_LEFT_OUT, f"weights that the models folder lacks: {', '.join(lost)}") if lost else _LEFT_OUT


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


def _save_control_and_files(
    data_dir: DataDir, source: Source, target: Path, *, models: bool, on_progress: TransferProgress
) -> Sequence[str]:
    """Copy the control database, and then the files that it names; return the versions that have no weights.

    Both are copied again while weights of a version were pruned in between.
    """
    saved = target / data_dir.control_db.name
    lost: Sequence[str] = ()
    for _ in range(_PASSES):
        saved.unlink(missing_ok=True)
        if source.save_control is not None:
            source.save_control(saved)
        elif data_dir.control_db.exists():
            _copy_database(data_dir.control_db, saved)
        copy_files(data_dir, target, models=models, on_progress=on_progress)
        on_progress("fetching what is in object storage", 0, 0)
        source.collect_objects(saved, target)
        lost = source.find_lost_versions(saved, target / "models") if models and saved.exists() else ()
        if not lost:
            break
    return lost


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
