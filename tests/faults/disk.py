"""A disk that fails at its n-th operation, and that forgets at a power cut what was not synced.

`Disk` wraps the system calls of a spool, for the files of one directory only. It tracks the *durable image*: the bytes
of each file as of its last sync, and the names in the directory as of the directory's last sync. `power_cut` writes
that image to a directory: the minimum that a disk keeps. The files themselves are the maximum, which another process
reads after a kill -9.
"""

import errno
import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest


class Fault(StrEnum):
    """What the n-th operation does instead of succeeding."""

    NONE = "none"
    """It succeeds, after ``at_nth`` was called."""
    NO_SPACE = "ENOSPC"
    IO_ERROR = "EIO"
    SHORT = "short write"
    """Half of the bytes are written and the call returns that; other calls fail with EIO."""
    TORN = "torn write"
    """Half of the bytes are written, and the call fails with EIO."""
    LOST = "lost pages"
    """A sync fails with EIO, and the unsynced bytes are lost: the kernel marks lost pages clean."""


_ERRNO: Final = {Fault.NO_SPACE: errno.ENOSPC}


class Disk:
    """Wraps ``os`` for as long as ``patch`` does.

    Args:
        patch: Undoes it.
        directory: Files elsewhere are left alone.
    """

    def __init__(self, patch: pytest.MonkeyPatch, directory: Path) -> None:
        self._directory = directory
        self._paths: dict[int, Path] = {}
        self._contents: dict[Path, bytes] = {}
        self._names: set[Path] = set()
        self._fail_at = 0
        self._is_lasting = False
        self._fault = Fault.NONE
        self._at_nth: Callable[[], object] = bool
        self.operations: list[str] = []
        """The operations since `fail_at`, as ``verb file-kind``."""
        self.failed = ""
        """The n-th operation, once it was reached."""
        self._wrap(patch)

    def fail_at(self, nth: int, fault: Fault, *, is_lasting: bool = False, at_nth: Callable[[], object] = bool) -> None:
        """Make the n-th operation fail, and with ``is_lasting`` every later one until `repair`."""
        self._fail_at, self._fault, self._is_lasting, self._at_nth = nth, fault, is_lasting, at_nth
        self.operations, self.failed = [], ""

    def repair(self) -> None:
        """Make every later operation succeed."""
        self._fail_at = 0

    def power_cut(self, target: Path) -> None:
        """Write the durable image to a directory."""
        target.mkdir()
        for path in self._names:
            (target / path.name).write_bytes(self._contents.get(path, b""))

    def _is_due(self, verb: str, path: Path) -> bool:
        self.operations.append(f"{verb} {path.suffix.lstrip('.') or path.name}")
        at = len(self.operations)
        if at == self._fail_at:
            self.failed = self.operations[-1]
            self._at_nth()
        is_reached = 0 < self._fail_at <= at if self._is_lasting else at == self._fail_at
        return is_reached and self._fault is not Fault.NONE and self._can_fail(verb)

    def _can_fail(self, verb: str) -> bool:
        """Return whether the fault affects this operation; a full disk can still be read, truncated and synced."""
        return self._fault is not Fault.NO_SPACE or verb not in {"read", "cut", "delete"}

    def _error(self) -> OSError:
        number = _ERRNO.get(self._fault, errno.EIO)
        return OSError(number, os.strerror(number))

    def _wrap(self, patch: pytest.MonkeyPatch) -> None:
        real_open = os.open

        def opening(path: Any, flags: int, mode: int = 0o777, **named: Any) -> int:
            opened_path = Path(path)
            is_ours = self._directory in {opened_path, opened_path.parent}
            is_new = bool(flags & os.O_CREAT) and not opened_path.exists()
            if is_ours and is_new and self._is_due("create", opened_path):
                raise self._error()
            fd = real_open(path, flags, mode, **named)
            if is_ours:
                self._paths[fd] = opened_path
            return fd

        patch.setattr(os, "open", opening)
        self._wrap_closing(patch)
        self._wrap_syncs(patch)
        self._wrap_writes(patch)
        self._wrap_names(patch)

    def _wrap_closing(self, patch: pytest.MonkeyPatch) -> None:
        real = os.close

        def closing(fd: int) -> None:
            self._paths.pop(fd, None)
            real(fd)

        patch.setattr(os, "close", closing)

    def _wrap_syncs(self, patch: pytest.MonkeyPatch) -> None:
        def around(name: str) -> None:
            real = getattr(os, name)

            def syncing(fd: int) -> None:
                path = self._paths.get(fd)
                if path is None:
                    real(fd)
                    return
                is_directory = path == self._directory
                if self._is_due("sync", Path("directory") if is_directory else path):
                    if self._fault is Fault.LOST and not is_directory:
                        self._forget(path)
                    raise self._error()
                if is_directory:
                    self._names = {entry for entry in self._directory.iterdir() if entry.is_file()}
                else:
                    self._contents[path] = path.read_bytes()

            patch.setattr(os, name, syncing)

        around("fsync")
        around("fdatasync")

    def _forget(self, path: Path) -> None:
        synced = self._contents.get(path, b"")
        size_bytes = path.stat().st_size
        path.write_bytes(synced.ljust(size_bytes, b"\0"))

    def _wrap_writes(self, patch: pytest.MonkeyPatch) -> None:
        def around(name: str, half: Callable[[Any], Any]) -> None:
            real = getattr(os, name)

            def writing(fd: int, data: Any, *rest: Any) -> int:
                path = self._paths.get(fd)
                if path is None or not self._is_due("write", path):
                    written: int = real(fd, data, *rest)
                    return written
                if self._fault in {Fault.SHORT, Fault.TORN}:
                    written = real(fd, half(data), *rest)
                    if self._fault is Fault.SHORT:
                        return written
                raise self._error()

            patch.setattr(os, name, writing)

        around("write", _half_of_bytes)
        around("pwrite", _half_of_bytes)
        around("writev", _half_of_buffers)
        around("pwritev", _half_of_buffers)

    def _wrap_names(self, patch: pytest.MonkeyPatch) -> None:
        def around(name: str, verb: str, find: Callable[[Any], Path | None]) -> None:
            real = getattr(os, name)

            def changing(target: Any, *rest: Any, **named: Any) -> Any:
                path = find(target)
                if path is not None and path.parent == self._directory and self._is_due(verb, path):
                    raise self._error()
                return real(target, *rest, **named)

            patch.setattr(os, name, changing)

        around("unlink", "delete", Path)
        around("ftruncate", "cut", self._paths.get)
        around("pread", "read", self._paths.get)


def _half_of_bytes(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _half_of_buffers(buffers: Sequence[bytes | memoryview]) -> list[bytes]:
    joined = b"".join(buffers)
    return [joined[: len(joined) // 2]]
