"""The local copies of objects: a folder of this host with a limit, which several processes use at once.

Invariant: a folder that `use` yields is complete, every file has the SHA-256 of the manifest, and nothing removes it
before it is released, or its process has ended. All copies together, with those that are being made, stay within the
limit: the ones that were used least recently go first.

Each copy ``NAME`` has a file ``NAME.lock``: its content is the size that is reserved, its time is the last use. Users
hold a shared ``flock`` on it, and who makes or removes the copy an exclusive one; the kernel releases both with the
process. ``room.lock`` is held for the accounting alone.
"""

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import ObjectStorageError
from spanloop.foundation.paths import sync_directory

from .manifest import ObjectManifest
from .store import ObjectStore

_logger: Final = logging.getLogger(__name__)
_LOCK: Final = ".lock"
_INCOMING: Final = ".incoming"
_ROOM: Final = "room"
_DIGEST_CHARACTERS: Final = 16
_SLASH: Final = "+"
_AT: Final = "@"


class CachedFolder:
    """A local copy of an object, in use until `release`, or until the process has ended."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path: Final = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let the copy be removed when its space is needed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.release()


class ObjectCache:
    """The local copies in one folder.

    Args:
        folder: The folder; it is made when the first copy is.
        limit_bytes: Of all copies together.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    def acquire(self, store: ObjectStore, name: str, *, keeps: Callable[[str], bool] = lambda _: True) -> CachedFolder:
        """Return a local copy of an object, which is made where it is missing; waits for a process that makes it.

        Args:
            store: Where the object is.
            name: Of the object.
            keeps: Accepts the files that the copy has.

        Raises:
            ObjectStorageError: There is no such object, a file is not the one that was stored, or the copies in use
                leave no room for it.
            OSError: The folder cannot be written.
        """
        manifest = store.get(name).filtered(keeps)
        entry = f"{name.replace('/', _SLASH)}{_AT}{manifest.digest[:_DIGEST_CHARACTERS]}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            descriptor = self._open_lock(entry)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if self._is_current(entry, descriptor) and (self._folder / entry).is_dir():
                now_ns = time.time_ns()  # the kernel's own time of a file has steps of milliseconds
                os.utime(descriptor, ns=(now_ns, now_ns))
                return CachedFolder(self._folder / entry, descriptor)
            os.close(descriptor)
            self._make(store, manifest, entry)

    def object_of(self, path: Path) -> str:
        """Return the object that a path of `acquire` is a copy of; empty for another path."""
        name, _, digest = path.name.rpartition(_AT)
        return name.replace(_SLASH, "/") if digest and path.parent == self._folder else ""

    @contextmanager
    def use(self, store: ObjectStore, name: str, *, keeps: Callable[[str], bool] = lambda _: True) -> Generator[Path]:
        """Yield a local copy that nothing removes meanwhile; it raises as `acquire`."""
        copy = self.acquire(store, name, keeps=keeps)
        try:
            yield copy.path
        finally:
            copy.release()

    def _make(self, store: ObjectStore, manifest: ObjectManifest, entry: str) -> None:
        """Make the copy unless another process has made it meanwhile."""
        descriptor = self._open_lock(entry)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            target = self._folder / entry
            if not self._is_current(entry, descriptor) or target.is_dir():
                return
            self._reserve(descriptor, entry, manifest)
            incoming = target.with_name(f"{entry}{_INCOMING}")
            _logger.info("fetching %s (%s bytes) from %s", manifest.name, f"{manifest.size_bytes:,}", store.url)
            store.fetch(manifest, incoming)
            for folder, _, _ in os.walk(incoming):
                sync_directory(Path(folder))
            incoming.rename(target)
        finally:
            os.close(descriptor)

    def _reserve(self, descriptor: int, entry: str, manifest: ObjectManifest) -> None:
        """Remove the copies that were used least recently until there is room, and reserve it."""
        with self._accounting():
            others = sorted(
                (lock for lock in self._folder.glob(f"*{_LOCK}") if lock.name != f"{entry}{_LOCK}"),
                key=lambda lock: lock.stat().st_mtime_ns,
            )
            sizes = {lock: _reserved(lock) for lock in others}
            for lock in others:
                if sum(sizes.values()) + manifest.size_bytes <= self._limit_bytes:
                    break
                if self._evict(lock):
                    del sizes[lock]
            used_bytes = sum(sizes.values())
            if used_bytes + manifest.size_bytes > self._limit_bytes:
                raise ObjectStorageError(
                    f"The object {manifest.name} has {manifest.size_bytes:,} bytes; the cache {self._folder} is "
                    f"limited to {self._limit_bytes:,}, of which {used_bytes:,} are in use.",
                    next_step="Raise cache_bytes of [storage] in spanloop.toml, or end a process that uses others.",
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(manifest.size_bytes).encode(), 0)

    @contextmanager
    def _accounting(self) -> Generator[None]:
        descriptor = os.open(self._folder / _ROOM, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _evict(self, lock: Path) -> bool:
        """Remove a copy that nobody uses or makes; return whether it was removed."""
        entry = lock.name.removesuffix(_LOCK)
        descriptor = self._open_lock(entry)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder, incoming = self._folder / entry, self._folder / f"{entry}{_INCOMING}"
            if folder.is_dir():
                shutil.rmtree(incoming, ignore_errors=True)
                folder.rename(incoming)  # so that a kill leaves no copy that looks complete
            shutil.rmtree(incoming, ignore_errors=True)
            lock.unlink()
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _open_lock(self, entry: str) -> int:
        return os.open(self._folder / f"{entry}{_LOCK}", os.O_RDWR | os.O_CREAT, 0o600)

    def _is_current(self, entry: str, descriptor: int) -> bool:
        """Return whether the lock's file is still the one of its name: it is removed together with a copy."""
        try:
            named = (self._folder / f"{entry}{_LOCK}").stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(descriptor)
        return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _reserved(lock: Path) -> int:
    try:
        return int(lock.read_text(encoding="ascii") or 0)
    except (OSError, ValueError):
        return 0  # it waits for room
