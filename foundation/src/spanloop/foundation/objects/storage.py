"""The object storage of the settings: the one place that decides where models, data sets and checkpoints live.

Without ``[storage] url`` (``SPANLOOP_STORAGE_URL``) there is none, and they are folders of the data directory, or of
the folder that roles share. The variable reaches every process that a role starts, as the other settings do.
"""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import STORAGE_CACHE_BYTES_ENV, STORAGE_URL_ENV

if TYPE_CHECKING:
    from .cache import ObjectCache
    from .store import ObjectStore

DEFAULT_CACHE_BYTES: Final = 64 * 2**30
_CACHE: Final = "objects"


class ObjectStorage(NamedTuple):
    """The objects, and their copies on this host."""

    store: "ObjectStore"
    cache: "ObjectCache"


def object_storage(data_dir: Path) -> ObjectStorage | None:
    """Return the object storage of the settings; None where there is none.

    Args:
        data_dir: Holds the local copies, in ``objects/``.

    Raises:
        ConfigurationError: The URL or the limit cannot be used, or a package is missing.
    """
    url = os.environ.get(STORAGE_URL_ENV, "").strip()
    if not url:
        return None
    from .cache import ObjectCache  # noqa: PLC0415 - only where there is object storage

    return ObjectStorage(open_store(url), ObjectCache(data_dir / _CACHE, _cache_bytes()))


def is_url(place: str) -> bool:
    """Return whether a place of the command line is a URL, not a path."""
    return "://" in place


@lru_cache(maxsize=8)
def open_store(url: str) -> "ObjectStore":
    """Return the objects below a URL.

    Raises:
        ConfigurationError: It cannot be used, or a package is missing.
    """
    if not is_url(url):
        raise ConfigurationError(
            f"{url!r} is not the URL of an object storage.",
            next_step=f"Let {STORAGE_URL_ENV}, or url of [storage], be such as s3://bucket/prefix; a shared folder is "
            "shared_dir.",
        )
    try:
        from .remote import Remote  # noqa: PLC0415 - fsspec is an extra
    except ImportError as error:
        raise ConfigurationError(
            f"Object storage ({url}) needs the package {error.name}.",
            next_step="pip install '/path/to/spanloop[storage]'",
        ) from error
    from .store import ObjectStore  # noqa: PLC0415 - as above

    return ObjectStore(Remote(url))


def _cache_bytes() -> int:
    text = os.environ.get(STORAGE_CACHE_BYTES_ENV, "").strip()
    if not text:
        return DEFAULT_CACHE_BYTES
    if not text.isdigit() or not int(text):
        raise ConfigurationError(
            f"{STORAGE_CACHE_BYTES_ENV}: expected a number of bytes above 0, got {text!r}.",
            next_step="Correct it, or unset it for the default.",
        )
    return int(text)
