"""The manifest of an object: the names, sizes and SHA-256 of the files of one folder in object storage.

Invariant: the manifest is written last, and readers look at nothing else. So an object with a manifest is complete.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, field_validator

from spanloop.foundation.errors import ObjectStorageError
from spanloop.foundation.paths.checksums import FileChecksum

FORMAT: Final = 1
MANIFEST_NAME: Final = "manifest.json"
FILES: Final = "files"
"""Folder of an object's files, each named by its SHA-256."""


class ObjectManifest(BaseModel):
    """``manifest.json`` of an object."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    name: str
    """Path of the object below the URL, such as ``models/smol/4f3a…``."""
    files: Mapping[str, FileChecksum] = Field(min_length=1)
    """Files by their path in the folder."""

    @field_validator("files")
    @classmethod
    def _stay_in_the_folder(cls, files: Mapping[str, FileChecksum]) -> Mapping[str, FileChecksum]:
        for name in files:
            if not name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise ValueError(f"{name!r} leads out of the object's folder")
        return dict(sorted(files.items()))

    @field_serializer("files")
    def _by_field(self, files: Mapping[str, FileChecksum]) -> dict[str, dict[str, int | str]]:
        return {name: {"size_bytes": file.size_bytes, "sha256": file.sha256} for name, file in files.items()}

    @property
    def size_bytes(self) -> int:
        """Total size of the files."""
        return sum(file.size_bytes for file in self.files.values())

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of the files: equal folders have equal digests."""
        document = json.dumps([[name, *file] for name, file in self.files.items()])
        return hashlib.sha256(document.encode()).hexdigest()

    @property
    def blobs(self) -> dict[str, int]:
        """The size of each distinct file by its name in object storage."""
        return {blob_name(self.name, file): file.size_bytes for file in self.files.values()}

    def filtered(self, keeps: Callable[[str], bool]) -> Self:
        """Return the manifest of those files whose name ``keeps`` accepts."""
        return self.model_copy(update={"files": {name: file for name, file in self.files.items() if keeps(name)}})


def blob_name(name: str, file: FileChecksum) -> str:
    """Return where the content of a file of an object is."""
    return f"{name}/{FILES}/{file.sha256}"


def parse_manifest(content: bytes, name: str, url: str) -> ObjectManifest | None:
    """Return the manifest of the object ``name``; None where it is not a whole JSON document, as after a torn write.

    Raises:
        ObjectStorageError: It is the manifest of another object, or of another version of spanloop.
    """
    try:
        document = json.loads(content)
    except ValueError:
        return None
    try:
        manifest = ObjectManifest.model_validate(document)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the document"
        raise _unusable(name, url, f"{where}: {fault['msg']}") from error
    if manifest.format != FORMAT:
        raise _unusable(name, url, f"got format {manifest.format}, expected {FORMAT}")
    if manifest.name != name:
        raise _unusable(name, url, f"it names the object {manifest.name!r}")
    return manifest


def _unusable(name: str, url: str, reason: str) -> ObjectStorageError:
    return ObjectStorageError(
        f"The manifest of {name} at {url} cannot be used: {reason}.",
        next_step="Use the spanloop that wrote it, or store the object again.",
    )
