"""Backups in object storage: the folder that `backup` writes, as one object of the same files.

Invariant: a backup at a URL is complete or absent, as one in a folder is. It is made on this host and sent then, so
that a slow storage holds no conversion up; a file that an earlier backup of the same name has sent is not sent again.
"""

import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.objects import open_store
from spanloop.foundation.objects.store import ObjectStore, files_below
from spanloop.foundation.paths.checksums import FileChecksum

from . import TransferProgress
from .backup_manifest import BackupManifest


class BackupObject(NamedTuple):
    """The place of a backup in object storage."""

    store: ObjectStore
    name: str


def backup_object(url: str) -> BackupObject:
    """Return the place that a URL names: its last part is the backup's name.

    Raises:
        ConfigurationError: It has no such part, or cannot be used.
    """
    base, _, name = url.rstrip("/").rpartition("/")
    if "://" not in base:
        raise ConfigurationError(
            f"{url} does not name a backup.", next_step="Name one below the bucket, such as s3://bucket/backups/monday."
        )
    return BackupObject(open_store(base), name)


def send_backup(
    url: str, work: Path, make: Callable[[Path], BackupManifest], on_progress: TransferProgress
) -> BackupManifest:
    """Make a backup in a folder, send it, and remove the folder.

    Args:
        url: Where it goes.
        work: A folder of this host that holds the backup meanwhile.
        make: Makes it in a folder that does not exist.
        on_progress: Called after every file.

    Raises:
        ConfigurationError: There is a backup of this name.
        ObjectStorageError: The storage cannot be written.
    """
    place = backup_object(url)
    if place.store.find(place.name) is not None:
        raise ConfigurationError(f"{url} exists.", next_step="Use a new name for each backup.")
    shutil.rmtree(work, ignore_errors=True)
    try:
        manifest = make(work)
        checksums = {name: FileChecksum(file.size_bytes, file.sha256) for name, file in manifest.files.items()}
        place.store.put(place.name, files_below(work), checksums=checksums, on_progress=_step("sending", on_progress))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return manifest


@contextmanager
def received_backup(url: str, work: Path, on_progress: TransferProgress) -> Generator[Path]:
    """Yield a folder with the files of a backup at a URL; an interrupted call goes on with the files that it has.

    Args:
        url: Where it is.
        work: The folder; it is removed at the end.
        on_progress: Called after every file.

    Raises:
        ConfigurationError: The URL cannot be used.
        ObjectStorageError: There is no such backup, or a file of it is damaged.
    """
    place = backup_object(url)
    place.store.fetch(place.store.get(place.name), work, on_progress=_step("receiving", on_progress))
    yield work
    shutil.rmtree(work)


def _step(doing: str, on_progress: TransferProgress) -> TransferProgress:
    return lambda _file, completed_bytes, total_bytes: on_progress(doing, completed_bytes, total_bytes)
