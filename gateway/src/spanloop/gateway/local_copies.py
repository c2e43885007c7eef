"""The folders of a deployment on this host: in the shared folder, or local copies of objects.

Invariant: a copy that a deployment names stays on this host until `LocalCopies.keep` drops it.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.objects import object_storage
from spanloop.foundation.paths import DataDir

from .engine.deployment import Deployment

if TYPE_CHECKING:
    from spanloop.foundation.objects.cache import CachedFolder

_PATHS: Final = ("path", "adapter")


class LocalCopies:
    """The copies that one deployment after another uses.

    Args:
        data_dir: The gateway's, which holds the copies.
        shared_dir: Of this host; relative paths of a deployment are in it, or are names of objects.
    """

    def __init__(self, data_dir: DataDir, shared_dir: Path) -> None:
        self._data_dir = data_dir
        self._shared_dir = shared_dir
        self._held: dict[str, CachedFolder] = {}

    def resolve(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a deploy request with absolute paths of this host; what is in object storage is fetched, and held.

        Raises:
            ConfigurationError: A relative path leads out of the shared folder.
            ObjectStorageError: An object cannot be fetched, or is not what was registered.
        """
        resolved = dict(document)
        for name in _PATHS:
            value = document.get(name)
            if not isinstance(value, str) or not value or Path(value).is_absolute():
                continue
            if ".." in Path(value).parts:
                raise ConfigurationError(f"{name!r} of a deployment leads out of the shared folder: {value!r}.")
            folder = self._shared_dir / value
            storage = None if folder.is_dir() else object_storage(self._data_dir.path)
            if storage is not None:
                copy = storage.cache.acquire(storage.store, value)
                folder = copy.path
                self._held[str(folder)] = copy
            resolved[name] = str(folder)
        return resolved

    def portable(self, deployment: Deployment) -> dict[str, Any]:
        """Return a deploy request that means the same on other hosts: the inverse of `resolve`."""
        storage = object_storage(self._data_dir.path)
        request: dict[str, Any] = asdict(deployment)
        for name in _PATHS:
            path = Path(request[name])
            if storage is not None and (object_name := storage.cache.object_of(path)):
                request[name] = object_name
            elif path.is_relative_to(self._shared_dir):
                request[name] = str(path.relative_to(self._shared_dir))
        return request

    def hold(self, deployment: Deployment) -> None:
        """Hold the copies that a deployment names, and fetch those that were removed since; it raises as `resolve`."""
        storage = object_storage(self._data_dir.path)
        if storage is None:
            return
        for path in filter(None, (deployment.path, deployment.adapter)):
            name = storage.cache.object_of(Path(path))
            if name and path not in self._held:
                self._held[path] = storage.cache.acquire(storage.store, name)

    def keep(self, deployment: Deployment | None) -> None:
        """Drop the copies that a deployment does not name; all of them for None."""
        kept = {deployment.path, deployment.adapter} if deployment is not None else set[str]()
        for path in set(self._held) - kept:
            self._held.pop(path).release()
