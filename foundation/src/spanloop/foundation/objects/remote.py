"""Files at an fsspec URL: the only module of spanloop that talks to fsspec.

Invariant: an operation that failed for a passing reason was tried again, and an error names the file. A file that was
sent counts as there only when the storage states its size; a file that was received has the SHA-256 that was expected.
Credentials come from the environment and files of the storage's own client (``AWS_*``, ``~/.aws``); none is stored or
printed.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import fsspec  # pyright: ignore[reportMissingTypeStubs] - it ships no type information

from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.paths.checksums import FileChecksum

_FSSPEC: Final[Any] = fsspec
PART_BYTES: Final = 16 * 2**20
"""Size of one part of a multipart upload, and of one ranged read. S3 takes at least 5 MiB and 10,000 parts."""
_MOST_PARTS: Final = 9_000
_WORKERS: Final = 4
_PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds before an operation is tried again."""
_DOWNLOADS: Final = 2
_S3: Final = frozenset({"s3", "s3a"})
_S3_CLIENT: Final[dict[str, Any]] = {
    "config_kwargs": {
        "retries": {"mode": "standard", "max_attempts": 2},
        "connect_timeout": 10,
        "read_timeout": 60,
    }
}
_NO_CREDENTIALS: Final = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})
"""Errors of botocore, by name: the storage may be another one."""
_MOST_TEXT: Final = 300

_Result = TypeVar("_Result")


class Remote:
    """The files below a URL.

    Args:
        url: An fsspec URL, without a password.
        part_bytes: Size of one part of an upload or a download.

    Raises:
        ConfigurationError: It is no such URL, or the package for its protocol is missing.
    """

    def __init__(self, url: str, *, part_bytes: int = PART_BYTES) -> None:
        self.url: Final = url.rstrip("/")
        self._part_bytes = part_bytes
        self._file_system, root = _open(self.url)
        self._root = root.rstrip("/")
        protocol = self._file_system.protocol
        self._is_s3 = bool(_S3 & {protocol} if isinstance(protocol, str) else _S3 & set(protocol))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder, by its name below the URL."""
        try:
            files: dict[str, dict[str, Any]] = self._tried(
                "listing", folder, lambda: self._file_system.find(self._path(folder), detail=True)
            )
        except FileNotFoundError:
            return {}
        return {path.removeprefix(f"{self._root}/"): int(each["size"]) for path, each in files.items()}

    def size(self, name: str) -> int | None:
        """Return the size of a file; None when it is not there."""
        try:
            return int(self._tried("looking at", name, lambda: self._file_system.info(self._path(name))["size"]))
        except FileNotFoundError:
            return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None when it is not there."""
        try:
            return bytes(self._tried("reading", name, lambda: self._file_system.cat_file(self._path(name))))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a small file.

        Raises:
            ObjectStorageError: It cannot be written.
        """

        def write() -> None:
            self._make_parent(name)
            self._file_system.pipe_file(self._path(name), content)

        self._stored("writing", name, write)

    def send(self, path: Path, name: str) -> None:
        """Upload a file, in parts where it is large, until the storage states its size.

        Raises:
            ObjectStorageError: It cannot be written.
            OSError: ``path`` cannot be read.
        """
        size_bytes = path.stat().st_size
        options: dict[str, Any] = {}
        if self._is_s3:
            options["chunksize"] = max(self._part_bytes, -(-size_bytes // _MOST_PARTS))

        def send() -> None:
            try:
                self._make_parent(name)
                self._file_system.put_file(str(path), self._path(name), **options)
            except Exception:
                # The answer may be lost and the file complete.
                if self.size(name) != size_bytes:
                    raise
            stated = self.size(name)
            if stated != size_bytes:
                raise OSError(f"the storage has {stated} bytes of it, expected {size_bytes}")

        self._stored("sending", name, send)

    def receive(self, name: str, target: Path, expected: FileChecksum, title: str) -> None:
        """Download a file and compare it with its checksum.

        Args:
            name: Of the file below the URL.
            target: The file to write, durably.
            expected: What the manifest states.
            title: Names the file in an error.

        Raises:
            ObjectStorageError: It is missing, cannot be read, or is not the file of the manifest.
        """
        digest = ""
        for _ in range(_DOWNLOADS):  # a second one, because the first may have been damaged on its way
            try:
                digest = self._download(name, target, expected.size_bytes)
            except FileNotFoundError as error:
                raise ObjectStorageError(
                    f"{title} is missing at {self.url}, although the manifest names it.",
                    next_step="Store the object again, or restore it from a backup.",
                ) from error
            if digest == expected.sha256:
                return
        target.unlink(missing_ok=True)
        raise ObjectStorageError(
            f"{title} at {self.url} is not the file that was stored: got SHA-256 {digest}, expected {expected.sha256}.",
            next_step="Store the object again, or restore it from a backup.",
        )

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; those that are not there are nothing to do.

        Raises:
            ObjectStorageError: One cannot be removed.
        """
        for name in names:
            try:
                self._tried("removing", name, partial(self._file_system.rm_file, self._path(name)))
            except FileNotFoundError:
                continue

    def _download(self, name: str, target: Path, size_bytes: int) -> str:
        digest = hashlib.sha256()
        starts = range(0, size_bytes, self._part_bytes)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file, ThreadPoolExecutor(_WORKERS) as workers:
            for first in range(0, len(starts), _WORKERS):
                ends = [
                    (start, min(start + self._part_bytes, size_bytes)) for start in starts[first : first + _WORKERS]
                ]
                for part in workers.map(partial(self._part, name), ends):
                    digest.update(part)
                    file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest()

    def _part(self, name: str, place: tuple[int, int]) -> bytes:
        start, end = place

        def read() -> bytes:
            content = bytes(self._file_system.cat_file(self._path(name), start=start, end=end))
            if len(content) != end - start:
                raise OSError(f"got {len(content)} bytes from {start}, expected {end - start}")
            return content

        return self._tried("reading", name, read)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _make_parent(self, name: str) -> None:
        # S3 has no folders; to make one would make the bucket.
        if not self._is_s3:
            self._file_system.makedirs(str(PurePosixPath(self._path(name)).parent), exist_ok=True)

    def _stored(self, doing: str, name: str, call: Callable[[], None]) -> None:
        try:
            self._tried(doing, name, call)
        except FileNotFoundError as error:
            raise ObjectStorageError(
                f"{self.url} does not exist: {_text(error)}.",
                next_step="Make the bucket or the folder, or correct the URL ([storage] url in spanloop.toml).",
            ) from error

    def _tried(self, doing: str, name: str, call: Callable[[], _Result]) -> _Result:
        """Return what ``call`` returns, after further tries where it failed for a passing reason.

        Raises:
            FileNotFoundError: The file, or the bucket, is not there.
            ObjectStorageError: It failed.
        """
        for pause_s in (*_PAUSES_S, None):
            try:
                return call()
            except (FileNotFoundError, ObjectStorageError):
                raise
            except Exception as error:  # each storage has errors of its own, and this is their border
                failure = self._failure(doing, name, error)
                if pause_s is None or not failure.is_transient:
                    raise failure from error
                time.sleep(pause_s)
        raise AssertionError  # the last try returns or raises

    def _failure(self, doing: str, name: str, error: Exception) -> ObjectStorageError:
        what = f"{doing.capitalize()} {name} at {self.url} failed: {_text(error)}."
        if type(error).__name__ in _NO_CREDENTIALS:
            next_step = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, for this process."
            return ObjectStorageError(what, next_step=next_step, is_transient=False)
        if isinstance(error, PermissionError):
            next_step = "Allow these credentials to list, read, write and delete below the URL."
            return ObjectStorageError(what, next_step=next_step, is_transient=False)
        next_step = "Check the storage and the network to it, then try again."
        return ObjectStorageError(what, next_step=next_step, is_transient=True)


def _open(url: str) -> tuple[Any, str]:
    parts = urlsplit(url)
    if parts.password:
        raise ConfigurationError(
            "The URL of the object storage has a password.",
            next_step="Leave it out; give credentials in the environment or the files of the storage's client.",
        )
    options: dict[str, Any] = {"use_listings_cache": False}
    if parts.scheme in _S3:
        options |= _S3_CLIENT
    try:
        opened: tuple[Any, str] = _FSSPEC.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise ConfigurationError(
            f"{url} cannot be used as object storage: {_text(error)}.",
            next_step="pip install '/path/to/spanloop[storage]' for s3://, or the fsspec package of another protocol.",
        ) from error
    return opened


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:_MOST_TEXT].rstrip(".")
