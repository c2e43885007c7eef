"""The files of a backup: their names in it, and their places in a data directory or in the folder that roles share.

Invariant: a file has the same name in every backup, wherever it lies.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir, sync_directory

from . import TransferProgress
from .backup_manifest import FILES, BackupManifest, describe

_NAMES: Final = ("keys.json", "users.json", "audit.jsonl", "redaction.toml", "gateway/rejected.jsonl")
_JOB_FILES: Final = ("log.txt", "dataset.parquet", "manifest.json")
"""All other files in a job's folder are scratch data."""
SHARED_NAMES: Final = ("models", "jobs", "keys.json", "users.json")
"""What lies in the folder that roles on several hosts share, where there is one."""
KEY_NAMES: Final = ("keys.json", "users.json")
"""Who gets in: of the deployment more than of its data."""


class NamedFile(NamedTuple):
    """One file of a data directory."""

    name: str
    """Within the backup."""
    path: Path
    size_bytes: int


def place_of(data_dir: DataDir, name: str) -> Path:
    """Return where a file or folder of a backup belongs."""
    head, _, rest = name.partition("/")
    shared = {"models": data_dir.models, "jobs": data_dir.jobs, "keys.json": data_dir.keys}
    place = data_dir.keys.with_name(head) if head == "users.json" else shared.get(head, data_dir.path / head)
    return place / rest if rest else place


def copy_files(data_dir: DataDir, target: Path, *, models: bool, on_progress: TransferProgress) -> None:
    """Copy the files to back up into a folder; those that it has already are not copied again."""
    files = list(_files(data_dir, models=models))
    total = sum(file.size_bytes for file in files)
    completed_bytes = 0
    for file in files:
        # A job can delete its own files meanwhile.
        with suppress(FileNotFoundError):
            _copy(file.path, target / file.name)
        completed_bytes += file.size_bytes
        on_progress("copying files", completed_bytes, total)


def _copy(source: Path, target: Path) -> None:
    stat = source.stat()
    if target.exists() and (target.stat().st_size, target.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns):
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _files(data_dir: DataDir, *, models: bool) -> Iterator[NamedFile]:
    """Yield the files to back up."""
    paths = {name: place_of(data_dir, name) for name in _NAMES}
    responses = data_dir.gateway / "responses"
    paths |= {f"gateway/responses/{path.name}": path for path in sorted(responses.glob("resp_*.json"))}
    for name in _JOB_FILES:
        paths |= {f"jobs/{path.parent.name}/{name}": path for path in sorted(data_dir.jobs.glob(f"*/{name}"))}
    if data_dir.generations.exists() and data_dir.running("gateway") is None:
        # The ids of spooled captures prevent duplicates of captures that are in the store already.
        paths |= {_below(data_dir.path, path): path for path in sorted(data_dir.generations.rglob("*"))}
    if models:
        paths["gateway/deployment.json"] = data_dir.gateway / "deployment.json"
        for version in sorted(data_dir.models.glob("*/v*")):
            if not version.name.endswith(".serving"):
                paths |= {f"models/{_below(data_dir.models, path)}": path for path in sorted(version.rglob("*"))}
    for name, path in paths.items():
        if path.is_file():
            yield NamedFile(name, path, path.stat().st_size)


def _below(root: Path, path: Path) -> str:
    return str(path.relative_to(root))


def place_files(source: Path, target: Path, on_progress: TransferProgress, without: Collection[str] = ()) -> None:
    """Copy the files of a backup into a new folder, by their names."""
    left_out = {source / name for name in without}
    files = [path for path in sorted(source.rglob("*")) if path.is_file() and path not in left_out]
    total, completed_bytes = sum(path.stat().st_size for path in files), 0
    for path in files:
        _copy(path, target / path.relative_to(source))
        completed_bytes += path.stat().st_size
        on_progress("copying files", completed_bytes, total)


def check_shared_places(data_dir: DataDir, manifest: BackupManifest, kept: Collection[str] = ()) -> None:
    """Check that the folder that roles share has nothing that a restore would replace.

    Args:
        data_dir: Names the shared folder.
        manifest: Of the backup.
        kept: Names that are not restored.

    Raises:
        ConfigurationError: It has something that is not from this backup.
    """
    for name in _shared(data_dir):
        if name in kept:
            continue
        place = place_of(data_dir, name)
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            in_backup = f"{FILES}/{name}" if path == place else f"{FILES}/{name}/{_below(place, path)}"
            if path.is_file() and manifest.files.get(in_backup) != describe(path):
                raise ConfigurationError(
                    f"{path} is in the shared folder and not in the backup, so nothing was restored.",
                    next_step="Let SPANLOOP_SHARED_DIR name an empty folder, or move what is in it"
                    + ("; --keep-keys leaves its keys and users." if name in KEY_NAMES else "."),
                )


def move_shared(data_dir: DataDir, staged: Path) -> None:
    """Move what roles on several hosts share from a restored folder into the shared folder, durably."""
    for name in _shared(data_dir):
        if not (staged / name).exists():
            continue
        place = place_of(data_dir, name)
        incoming = place.with_name(f".{place.name}.restoring")
        _remove_any(incoming)
        # A rename, where the shared folder is on the same disk.
        shutil.move(staged / name, incoming)
        _remove_any(place)
        for path in (incoming, *incoming.rglob("*")):
            _sync(path)
        incoming.rename(place)
        sync_directory(place.parent)


def _shared(data_dir: DataDir) -> list[str]:
    """Return the names whose place is not in the data directory."""
    return [name for name in SHARED_NAMES if place_of(data_dir, name) != data_dir.path / name]


def _remove_any(path: Path) -> None:
    if path.is_file():
        path.unlink()
    remove(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a folder that an interrupted run has left."""
    if folder.exists():
        shutil.rmtree(folder)
