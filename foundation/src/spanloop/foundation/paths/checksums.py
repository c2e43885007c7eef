"""Checksums of a folder that one host writes and others read, such as a model version in the shared folder.

Invariant: a folder that `check_folder` accepts has every file that was written, with its size and its SHA-256. Sizes
are compared each time; a digest is computed once for each file and host, and again when the file's time or size
changes. A folder without `CHECKSUMS_FILE` was made before there were checksums, or by the user, and is accepted.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from spanloop.foundation.errors import DataDirectoryError

from .directory import write_atomically

CHECKSUMS_FILE: Final = "spanloop-checksums.json"
_CHUNK_BYTES: Final = 4 * 2**20
_MAX_REMEMBERED: Final = 200
_RESTORE: Final = (
    "Wait until the copy to this host is complete, restore the folder from a backup, or use another version: "
    "spanloop models list"
)


class FileChecksum(NamedTuple):
    """What a file was when it was written."""

    size_bytes: int
    sha256: str


def write_checksums(folder: Path, checksums: Mapping[str, FileChecksum] | None = None) -> None:
    """Write the checksums of a complete folder, durably.

    Args:
        folder: The folder.
        checksums: By the file's path in the folder; None reads every file.

    Raises:
        OSError: A file cannot be read, or the checksums cannot be written.
    """
    found = checksums
    if found is None:
        found = {name: FileChecksum(path.stat().st_size, _sha256(path)) for name, path in _files(folder)}
    document = {"files": {name: found[name]._asdict() for name in sorted(found)}}
    write_atomically(folder / CHECKSUMS_FILE, json.dumps(document, indent=1) + "\n", mode=0o644)


def check_folder(folder: Path, memory: Path) -> None:
    """Compare a folder with its checksums.

    Args:
        folder: The folder.
        memory: A file of this host that remembers which files were read and found right.

    Raises:
        DataDirectoryError: A file is missing, or its size or content differs.
    """
    expected = read_checksums(folder)
    if expected is None:
        return
    stats = {name: _stat(folder, name, checksum) for name, checksum in expected.items()}
    stamp = hashlib.sha256(
        json.dumps([(name, *expected[name], stats[name].st_mtime_ns) for name in sorted(expected)]).encode()
    ).hexdigest()
    remembered = _remembered(memory)
    if remembered.get(str(folder)) == stamp:
        return
    for name, checksum in expected.items():
        digest = _digest(folder / name)
        if digest != checksum.sha256:
            raise DataDirectoryError(
                f"{folder / name} is not the file that was registered: got SHA-256 {digest}, "
                f"expected {checksum.sha256}.",
                next_step=_RESTORE,
            )
    recent = dict(list((remembered | {str(folder): stamp}).items())[-_MAX_REMEMBERED:])
    write_atomically(memory, json.dumps(recent, indent=1) + "\n")


def read_checksums(folder: Path) -> dict[str, FileChecksum] | None:
    """Return the checksums of a folder by the files' paths in it; None when it has none.

    Raises:
        DataDirectoryError: They cannot be read.
    """
    path = folder / CHECKSUMS_FILE
    try:
        document = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
        return {
            name: FileChecksum(int(each["size_bytes"]), str(each["sha256"])) for name, each in document["files"].items()
        }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise DataDirectoryError(f"The checksums {path} cannot be read: {error!r}.", next_step=_RESTORE) from error


def _stat(folder: Path, name: str, checksum: FileChecksum) -> os.stat_result:
    path = folder / name
    try:
        found = path.stat()
    except OSError as error:
        raise DataDirectoryError(
            f"{path} cannot be read: {error.strerror}; expected {checksum.size_bytes:,} bytes.", next_step=_RESTORE
        ) from error
    if found.st_size != checksum.size_bytes:
        raise DataDirectoryError(
            f"{path} is not complete: got {found.st_size:,} bytes, expected {checksum.size_bytes:,}.",
            next_step=_RESTORE,
        )
    return found


def _digest(path: Path) -> str:
    try:
        return _sha256(path)
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error.strerror}.", next_step=_RESTORE) from error


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != CHECKSUMS_FILE:
            yield str(path.relative_to(folder)), path


def _remembered(memory: Path) -> dict[str, str]:
    try:
        content = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # the files are read once more
    return cast("dict[str, str]", content) if isinstance(content, dict) else {}
