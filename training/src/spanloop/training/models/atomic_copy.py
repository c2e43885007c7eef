"""Copy model folders atomically: a folder appears complete or not at all.

A folder is copied to a temporary name beside its target, with the checksums of its files. All its files and directories
are fsynced, and then it is renamed. Trade-off: a copy needs twice the disk space while it runs, and one fsync for each
file. A killed copy leaves a folder named ``.incoming-`` and the identity of its process; the next copy removes it.
"""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import DataDirectoryError, JobError
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, FileChecksum, write_checksums
from spanloop.foundation.processes.identity import ProcessIdentity

INCOMING_PREFIX: Final = ".incoming-"
CHUNK_BYTES: Final = 4 * 1024 * 1024
WEIGHT_PATTERNS: Final = ("*.safetensors", "pytorch_model*.bin")


class CopiedFolder(NamedTuple):
    """Hash and size of a copied model folder."""

    weights_sha256: str
    """SHA-256 over the weight files, sorted by name: name, length in bytes and content of each."""
    size_bytes: int


def check_model_folder(source: Path) -> None:
    """Check that ``source`` is a Hugging Face model folder.

    Raises:
        JobError: It is not a directory, or has no config.json or no weights.
    """
    if not source.is_dir():
        raise JobError(f"{source} is not a directory; a model version is a Hugging Face folder.")
    if not (source / "config.json").is_file():
        raise JobError(f"{source} has no config.json; a model version is a Hugging Face folder.")
    if not _weight_files(source):
        raise JobError(f"{source} has no weights: expected {' or '.join(WEIGHT_PATTERNS)}.")


def has_weights(folder: Path) -> bool:
    """Return whether a folder has weights."""
    return bool(_weight_files(folder))


def copy_to_incoming(source: Path, parent: Path) -> tuple[Path, CopiedFolder]:
    """Copy ``source`` to a temporary folder in ``parent`` and fsync it; symbolic links are followed.

    Raises:
        DataDirectoryError: The disk is full, or a file cannot be read or written.
    """
    parent.mkdir(parents=True, exist_ok=True)
    clear_incoming(parent)
    size_bytes = sum(path.stat().st_size for path in _files(source))
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < size_bytes:
        raise _disk_full(parent, size_bytes, free_bytes)
    temporary = parent / f"{INCOMING_PREFIX}{ProcessIdentity.current().file_name}-{secrets.token_hex(4)}"
    try:
        digest = _copy_tree(source, temporary)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise _disk_full(parent, size_bytes, shutil.disk_usage(parent).free) from error
        raise DataDirectoryError(
            f"The model folder {source} could not be copied to {parent}: {error}.",
            next_step="Check that the source is readable and the data directory writable by you.",
        ) from error
    return temporary, CopiedFolder(digest, size_bytes)


def clear_incoming(parent: Path) -> None:
    """Remove incomplete copies of ended processes in ``parent``."""
    for leftover in parent.glob(f"{INCOMING_PREFIX}*"):
        owner = ProcessIdentity.from_file_name(leftover.name.removeprefix(INCOMING_PREFIX).rpartition("-")[0])
        if owner is None or owner.has_ended():
            shutil.rmtree(leftover, ignore_errors=True)


def rename_into_place(temporary: Path, target: Path) -> None:
    """Rename a complete folder durably to ``target``, replacing a leftover folder there."""
    if target.exists():
        shutil.rmtree(target)
    temporary.rename(target)
    _fsync(target.parent)


def _copy_tree(source: Path, target: Path) -> str:
    digest = hashlib.sha256()
    weights = set(_weight_files(source))
    checksums: dict[str, FileChecksum] = {}
    target.mkdir()
    for path in _files(source):
        name = path.relative_to(source)
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path in weights:
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        checksums[str(name)] = _copy_file(path, copy, on_chunk=digest.update if path in weights else _ignore)
    write_checksums(target, checksums)
    for folder in sorted({target, *(path for path in target.rglob("*") if path.is_dir())}, reverse=True):
        _fsync(folder)
    return digest.hexdigest()


def _copy_file(source: Path, target: Path, *, on_chunk: Callable[[bytes], None]) -> FileChecksum:
    digest, size_bytes = hashlib.sha256(), 0
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
            on_chunk(chunk)
            digest.update(chunk)
            size_bytes += len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    return FileChecksum(size_bytes, digest.hexdigest())


def _ignore(_chunk: bytes) -> None:
    """Ignore the content of files that are not weights."""


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, without the checksums of an earlier copy."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != CHECKSUMS_FILE)


def _weight_files(folder: Path) -> list[Path]:
    return sorted(path for pattern in WEIGHT_PATTERNS for path in folder.glob(pattern) if path.is_file())


def _fsync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk_full(parent: Path, size_bytes: int, free_bytes: int) -> DataDirectoryError:
    return DataDirectoryError(
        f"Not enough disk space for a model of {size_bytes} bytes in {parent}: {free_bytes} bytes are free.",
        next_step="Free disk space, for example by removing old versions: spanloop models list",
        is_transient=True,
    )
