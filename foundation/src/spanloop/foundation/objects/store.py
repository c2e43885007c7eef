"""Objects: folders that are stored below a URL as a whole, by name.

Invariant: an object is visible only when it is complete. Its files are sent first, each under the SHA-256 of its
content; the manifest follows when the storage states the size of every file. A file that is there already is not sent
again, so an interrupted upload goes on where it was. An object is removed in the other order.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import ObjectStorageError
from spanloop.foundation.paths.checksums import FileChecksum

from .manifest import FILES, MANIFEST_NAME, ObjectManifest, blob_name, parse_manifest

if TYPE_CHECKING:
    from .remote import Remote

Progress = Callable[[str, int, int], None]
"""Called with what is done, and how many bytes of how many are completed."""
_CHUNK_BYTES: Final = 4 * 2**20


def _nothing(*_: object) -> None: ...


class ObjectStore:
    """The objects below a URL.

    Args:
        remote: The files below the URL.
    """

    def __init__(self, remote: "Remote") -> None:
        self._remote = remote
        self.url: Final = remote.url

    def put(
        self,
        name: str,
        files: Mapping[str, Path],
        *,
        checksums: Mapping[str, FileChecksum] | None = None,
        before_manifest: Callable[[], None] = _nothing,
        on_progress: Progress = _nothing,
    ) -> ObjectManifest:
        """Store files as the object ``name``, which appears, or changes, at once.

        Args:
            name: Of the object, such as ``models/smol/4f3a…``.
            files: The files, which do not change meanwhile, by their path in the object.
            checksums: Those that are known; the other files are read.
            before_manifest: Called when all files are there; what it raises leaves the object as it was.
            on_progress: Called after each file.

        Raises:
            ObjectStorageError: The storage cannot be written.
            OSError: A file cannot be read.
        """
        known = checksums or {}
        manifest = ObjectManifest(
            name=name, files={each: known.get(each) or describe(path) for each, path in files.items()}
        )
        if self.find(name) == manifest:
            before_manifest()
            return manifest
        there = self._remote.sizes(f"{name}/{FILES}")
        completed_bytes = 0
        for each, checksum in manifest.files.items():
            blob = blob_name(name, checksum)
            if there.get(blob) != checksum.size_bytes:
                self._remote.send(files[each], blob)
                there[blob] = checksum.size_bytes
            completed_bytes += checksum.size_bytes
            on_progress(f"sending {each}", completed_bytes, manifest.size_bytes)
        before_manifest()
        self._check_complete(manifest)
        self._remote.write(f"{name}/{MANIFEST_NAME}", manifest.model_dump_json(indent=1).encode())
        return manifest

    def find(self, name: str) -> ObjectManifest | None:
        """Return the manifest of a complete object; None where there is none.

        Raises:
            ObjectStorageError: The storage cannot be read, or the manifest is of another object or version.
        """
        content = self._remote.read(f"{name}/{MANIFEST_NAME}")
        return None if content is None else parse_manifest(content, name, self.url)

    def get(self, name: str) -> ObjectManifest:
        """Return the manifest of a complete object.

        Raises:
            ObjectStorageError: There is none; or as `find`.
        """
        manifest = self.find(name)
        if manifest is None:
            raise ObjectStorageError(
                f"There is no complete object {name} at {self.url}.",
                next_step="Wait until it is stored, or store it again; an upload that ended early leaves no object.",
            )
        return manifest

    def names(self, folder: str) -> list[str]:
        """Return the names of the complete objects below a folder, in order."""
        end = f"/{MANIFEST_NAME}"
        return sorted(name.removesuffix(end) for name in self._remote.sizes(folder) if name.endswith(end))

    def fetch(self, manifest: ObjectManifest, target: Path, *, on_progress: Progress = _nothing) -> None:
        """Download the files of an object into a folder; those that are there with the right content stay.

        Raises:
            ObjectStorageError: A file is missing or is not the one of the manifest, or the storage cannot be read.
            OSError: The folder cannot be written.
        """
        completed_bytes = 0
        for each, checksum in manifest.files.items():
            path = target / each
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (path.is_file() and path.stat().st_size == checksum.size_bytes and describe(path) == checksum):
                title = f"{each} of the object {manifest.name}"
                self._remote.receive(blob_name(manifest.name, checksum), path, checksum, title)
            completed_bytes += checksum.size_bytes
            on_progress(f"receiving {each}", completed_bytes, manifest.size_bytes)

    def replace(self, manifest: ObjectManifest) -> None:
        """Let an object have only the files of ``manifest``, which are there, and remove its other ones.

        An interrupted call leaves files that no manifest names; the next call removes them.
        """
        self._check_complete(manifest)
        self._remote.write(f"{manifest.name}/{MANIFEST_NAME}", manifest.model_dump_json(indent=1).encode())
        self._remote.remove(set(self._remote.sizes(f"{manifest.name}/{FILES}")) - set(manifest.blobs))

    def remove(self, name: str) -> None:
        """Remove an object, its manifest first; an incomplete one too."""
        self._remote.remove([f"{name}/{MANIFEST_NAME}"])
        self._remote.remove(self._remote.sizes(f"{name}/{FILES}"))

    def remove_below(self, folder: str) -> None:
        """Remove all objects below a folder, manifests first, and what interrupted uploads left there."""
        names = self._remote.sizes(folder)
        self._remote.remove(sorted(names, key=lambda name: not name.endswith(f"/{MANIFEST_NAME}")))

    def _check_complete(self, manifest: ObjectManifest) -> None:
        there = self._remote.sizes(f"{manifest.name}/{FILES}")
        missing = [blob for blob, size_bytes in manifest.blobs.items() if there.get(blob) != size_bytes]
        if missing:
            raise ObjectStorageError(
                f"{len(missing)} files of the object {manifest.name} at {self.url} are gone or incomplete after they "
                f"were sent, such as {missing[0]}.",
                next_step="Something else removes files there. Try again when it has ended.",
                is_transient=True,
            )


def files_below(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their path in it."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def describe(path: Path) -> FileChecksum:
    """Return size and SHA-256 of a file."""
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size_bytes += len(chunk)
    return FileChecksum(size_bytes, digest.hexdigest())
