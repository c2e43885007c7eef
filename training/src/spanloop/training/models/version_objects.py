"""Model versions in object storage: each is the object ``models/<name>/<digest of its files>``.

Invariant: a copy on this host stays there as long as the `VersionObjects` that returned it. A folder that is registered
again, also after a kill in the middle, is the same object, and what is there already is not sent again.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import ConfigurationError, ObjectStorageError
from spanloop.foundation.objects import ObjectStorage, object_storage
from spanloop.foundation.objects.manifest import ObjectManifest
from spanloop.foundation.objects.store import describe, files_below
from spanloop.foundation.paths.checksums import CHECKSUMS_FILE, read_checksums
from spanloop.semconv.environment import STORAGE_URL_ENV

from .atomic_copy import WEIGHT_PATTERNS

if TYPE_CHECKING:
    from spanloop.foundation.objects.cache import CachedFolder

SERVING_SUFFIX: Final = ".serving"
_FOLDER: Final = "models"
_DIGEST_CHARACTERS: Final = 32


class VersionObjects:
    """The versions in the object storage of the settings.

    Args:
        root: The data directory, which holds the local copies.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._copies: dict[tuple[str, bool], CachedFolder] = {}

    @property
    def is_configured(self) -> bool:
        """Whether new versions are stored as objects."""
        return object_storage(self._root) is not None

    def store(self, model: str, folder: Path) -> ObjectManifest:
        """Store a complete folder of a version, which does not change meanwhile.

        Raises:
            ObjectStorageError: The storage cannot be written.
        """
        checksums = dict(read_checksums(folder) or {})
        checksums[CHECKSUMS_FILE] = describe(folder / CHECKSUMS_FILE)
        document = json.dumps([[name, *checksums[name]] for name in sorted(checksums)])
        digest = hashlib.sha256(document.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        name = f"{_FOLDER}/{model}/{digest}"
        self._copies.pop((name, True), None)  # it may be one of pruned weights
        return self._storage().store.put(name, files_below(folder), checksums=checksums)

    def check(self, manifest: ObjectManifest) -> None:
        """Check that an object that was stored is still complete.

        Raises:
            ObjectStorageError: It is not: another process pruned a version of the same files.
        """
        if self._storage().store.find(manifest.name) != manifest:
            raise ObjectStorageError(
                f"The object {manifest.name} was changed while it was registered; nothing was registered.",
                next_step="Try again.",
                is_transient=True,
            )

    def folder(self, object_name: str, *, weights: bool = True) -> Path:
        """Return a copy of a version on this host, with its weights or without.

        Raises:
            ObjectStorageError: It is not there or damaged, or the storage or the cache cannot be used.
        """
        key = object_name, weights
        if key not in self._copies:
            storage = self._storage()
            keeps = _is_any if weights else _is_no_weights
            self._copies[key] = storage.cache.acquire(storage.store, object_name, keeps=keeps)
        return self._copies[key].path

    def serving_object(self, object_name: str, serving_path: Callable[[Path], Path]) -> str:
        """Return the object that an engine loads for a version: its own, or a copy that is stored beside it, once.

        Args:
            object_name: Of the version.
            serving_path: Returns the folder to serve for a folder of weights: the same, or a new one beside it.
        """
        storage = self._storage()
        serving = f"{object_name}{SERVING_SUFFIX}"
        if storage.store.find(serving) is not None:
            return serving
        scratch = Path(tempfile.mkdtemp(prefix="serving-", dir=self._root))
        try:
            weights = scratch / "version"
            weights.symlink_to(self.folder(object_name), target_is_directory=True)
            chosen = serving_path(weights)
            if chosen == weights:
                return object_name
            storage.store.put(serving, files_below(chosen), checksums=read_checksums(chosen))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return serving

    def prunable_bytes(self, object_name: str) -> int:
        """Return the size of the weights of a version, and of the copy that is served."""
        store = self._storage().store
        weights, serving = store.find(object_name), store.find(f"{object_name}{SERVING_SUFFIX}")
        size_bytes = 0 if serving is None else serving.size_bytes
        if weights is not None:
            size_bytes += sum(file.size_bytes for name, file in weights.files.items() if not _is_no_weights(name))
        return size_bytes

    def prune(self, object_name: str) -> None:
        """Remove the weights of a version, and the copy that is served; an interrupted call is repeated."""
        store = self._storage().store
        store.remove(f"{object_name}{SERVING_SUFFIX}")
        manifest = store.find(object_name)
        if manifest is not None:
            store.replace(manifest.filtered(_is_no_weights))

    def _storage(self) -> ObjectStorage:
        storage = object_storage(self._root)
        if storage is None:
            raise ConfigurationError(
                f"The version is in object storage, and {STORAGE_URL_ENV} is not set.",
                next_step="Set it, or url of [storage] in spanloop.toml, to the URL that it was registered with.",
            )
        return storage


def _is_any(_name: str) -> bool:
    return True


def _is_no_weights(name: str) -> bool:
    return not any(fnmatchcase(name, pattern) for pattern in WEIGHT_PATTERNS)
