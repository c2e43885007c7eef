"""The manifest of a backup: size and hash of each file, and rows of each table.

Invariant: the manifest is written last, into a folder that is renamed last. So a folder with a manifest is a complete
backup, and its hashes reveal later changes.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from pydantic import BaseModel, ConfigDict, ValidationError

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import write_atomically

from . import TransferProgress

FORMAT: Final = 1
NAME: Final = "manifest.json"
STORE: Final = "clickhouse"
"""Folder of ClickHouse's own backup."""
FILES: Final = "files"
"""Folder of the files of the data directory."""
_INDEX: Final = ".backup"
_CHUNK_BYTES: Final = 2**20


class BackupFile(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size_bytes: int
    sha256: str


class BackupManifest(BaseModel):
    """``manifest.json`` of a backup."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    spanloop: str
    """Version that created the backup."""
    created_at: str
    """Start of the backup, ISO 8601, UTC; it contains all data acknowledged before."""
    tables: Mapping[str, int]
    """Number of rows by table."""
    has_models: bool
    left_out: tuple[str, ...]
    """Descriptions of the data that is not in the backup."""
    files: Mapping[str, BackupFile]
    """Files by path within the backup."""

    @property
    def size_bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size_bytes for file in self.files.values())


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Write the manifest into the folder, durably."""
    write_atomically(folder / NAME, manifest.model_dump_json(indent=1))


def read_manifest(folder: Path) -> BackupManifest:
    """Read the manifest of a complete backup.

    Raises:
        DataDirectoryError: The folder is not a complete backup, or is of another version.
    """
    path = folder / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataDirectoryError(
            f"{folder} is not a complete backup: {path.name} cannot be read ({error.strerror}).",
            next_step="Name the folder that `spanloop backup` printed.",
        ) from error
    try:
        manifest = BackupManifest.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the document"
        raise DataDirectoryError(
            f"{path} is not a manifest that spanloop {version('spanloop')} can read: {where}: {fault['msg']}.",
            next_step="Restore it with the spanloop that created it.",
        ) from error
    if manifest.format != FORMAT:
        raise DataDirectoryError(
            f"The backup {folder} has format {manifest.format}, created by spanloop {manifest.spanloop}; this is "
            f"spanloop {version('spanloop')}, which reads format {FORMAT}.",
            next_step=f"Use spanloop {manifest.spanloop}, or a newer one: pip install /path/to/spanloop.",
        )
    return manifest


def check_files(folder: Path, manifest: BackupManifest, on_progress: TransferProgress) -> None:
    """Compare every file with the manifest.

    Raises:
        DataDirectoryError: A file is missing, changed or not in the manifest.
    """
    names = set(file_names(folder))
    missing, unexpected = sorted(set(manifest.files) - names), sorted(names - set(manifest.files) - {NAME})
    if missing or unexpected:
        what = f"lacks {missing[0]}" if missing else f"has {unexpected[0]}, which its manifest does not name"
        raise _damaged(folder, f"{what} (and {len(missing) + len(unexpected) - 1} more such files)")
    completed_bytes = 0
    for name, expected in sorted(manifest.files.items()):
        file = describe(folder / name)
        if file != expected:
            raise _damaged(folder, f"{name} has {file.size_bytes} bytes and not the content that was backed up")
        completed_bytes += file.size_bytes
        on_progress("checking", completed_bytes, manifest.size_bytes)


def _damaged(folder: Path, what: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"The backup {folder} is damaged: it {what}.", next_step="Use another backup; nothing was restored."
    )


def describe_files(folder: Path, on_progress: TransferProgress) -> dict[str, BackupFile]:
    """Hash and sync (fsync) every file below the folder."""
    names = sorted(file_names(folder))
    total = sum((folder / name).stat().st_size for name in names)
    described: dict[str, BackupFile] = {}
    completed_bytes = 0
    for name in names:
        described[name] = describe(folder / name, durably=True)
        completed_bytes += described[name].size_bytes
        on_progress("hashing", completed_bytes, total)
    return described


def file_names(folder: Path) -> Iterator[str]:
    """Yield the paths of all files below a folder, relative to it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield str((Path(parent) / name).relative_to(folder))


def describe(path: Path, *, durably: bool = False) -> BackupFile:
    """Return size and hash of a file; with ``durably``, sync it too."""
    digest = hashlib.sha256()
    size_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
        if durably:
            os.fsync(file.fileno())
    return BackupFile(size_bytes=size_bytes, sha256=digest.hexdigest())


def rows_by_table(store_folder: Path) -> dict[str, int]:
    """Return the rows by table in ClickHouse's backup, from the counts of its parts; equal files are stored once.

    Tables without rows are omitted.
    """
    counts: dict[str, int] = {}
    index = ET.parse(store_folder / _INDEX)  # noqa: S314 - written by our own server
    for file in index.iter("file"):
        name = file.findtext("name", "")
        if name.endswith("/count.txt"):
            content = store_folder / file.findtext("data_file", name)
            table = name.split("/")[2]
            counts[table] = counts.get(table, 0) + int(content.read_text(encoding="ascii"))
    return counts
