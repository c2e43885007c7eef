"""What a backup holds, file by file and table by table.

Invariant: the manifest is written last, into a folder that gets its name last. So a folder that has one is a whole
backup, and whatever happened to it since is found by its hashes.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from pydantic import BaseModel, ConfigDict, ValidationError

from spanloop.datadir import write_atomically
from spanloop.semconv.errors import DataDirectoryError

FORMAT: Final = 1
NAME: Final = "manifest.json"
STORE: Final = "clickhouse"
"""Folder of what ClickHouse wrote."""
FILES: Final = "files"
"""Folder of the data directory's files."""
_INDEX: Final = ".backup"
_CHUNK_BYTES: Final = 2**20

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many bytes of it are, and how many there are (0: not known yet)."""


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
    """Version that made it."""
    created_at: str
    """When it was begun, ISO 8601, UTC: what was acknowledged before is in it."""
    tables: Mapping[str, int]
    """Rows, by table."""
    has_models: bool
    left_out: tuple[str, ...]
    """What is not in it, for a person."""
    files: Mapping[str, BackupFile]
    """By path within the backup."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files.values())


def write_manifest(folder: Path, manifest: BackupManifest) -> None:
    """Put it into the folder, durably."""
    write_atomically(folder / NAME, manifest.model_dump_json(indent=1))


def read_manifest(folder: Path) -> BackupManifest:
    """The manifest of a whole backup.

    Raises:
        DataDirectoryError: The folder is none, or one of another version.
    """
    path = folder / NAME
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataDirectoryError(
            f"{folder} is no backup, or none that was finished: {path.name} cannot be read ({error.strerror}).",
            next_step="Name the folder that `spanloop backup` printed.",
        ) from error
    try:
        manifest = BackupManifest.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the whole"
        raise DataDirectoryError(
            f"{path} is no manifest that spanloop {version('spanloop')} reads: {where}: {fault['msg']}.",
            next_step="Restore it with the spanloop that made it.",
        ) from error
    if manifest.format != FORMAT:
        raise DataDirectoryError(
            f"The backup {folder} has format {manifest.format}, created by spanloop {manifest.spanloop}; this is "
            f"spanloop {version('spanloop')}, which reads format {FORMAT}.",
            next_step=f"Run pip install 'spanloop=={manifest.spanloop}', or a newer one.",
        )
    return manifest


def check_files(folder: Path, manifest: BackupManifest, progress: Progress) -> None:
    """Compare every file with the manifest.

    Raises:
        DataDirectoryError: One is missing, was changed, or does not belong there.
    """
    found = set(file_names(folder))
    missing, foreign = sorted(set(manifest.files) - found), sorted(found - set(manifest.files) - {NAME})
    if missing or foreign:
        what = f"lacks {missing[0]}" if missing else f"has {foreign[0]}, which its manifest does not name"
        raise _damaged(folder, f"{what} (and {len(missing) + len(foreign) - 1} more such files)")
    done = 0
    for name, expected in sorted(manifest.files.items()):
        file = describe(folder / name)
        if file != expected:
            raise _damaged(folder, f"{name} has {file.size_bytes} bytes and other content than was backed up")
        done += file.size_bytes
        progress("checking", done, manifest.size_bytes)


def _damaged(folder: Path, what: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"The backup {folder} is damaged: it {what}.", next_step="Take another backup; nothing was restored."
    )


def describe_files(folder: Path, progress: Progress) -> dict[str, BackupFile]:
    """Every file below the folder, hashed, with its content on disk for good."""
    names = sorted(file_names(folder))
    total = sum((folder / name).stat().st_size for name in names)
    described: dict[str, BackupFile] = {}
    done = 0
    for name in names:
        described[name] = describe(folder / name, durably=True)
        done += described[name].size_bytes
        progress("hashing", done, total)
    return described


def file_names(folder: Path) -> Iterator[str]:
    """Paths of all files below a folder, relative to it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            yield str((Path(parent) / name).relative_to(folder))


def describe(path: Path, *, durably: bool = False) -> BackupFile:
    """Size and hash of a file."""
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
    """Rows of every table in what ClickHouse wrote: each part has its count, equal files are there once.

    Tables without rows are left out.
    """
    counts: dict[str, int] = {}
    index = ET.parse(store_folder / _INDEX)  # noqa: S314 - our own server wrote it a moment ago
    for file in index.iter("file"):
        name = file.findtext("name", "")
        if name.endswith("/count.txt"):
            content = store_folder / file.findtext("data_file", name)
            table = name.split("/")[2]
            counts[table] = counts.get(table, 0) + int(content.read_text(encoding="ascii"))
    return counts
