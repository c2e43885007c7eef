"""Stored responses of the Responses API: files in ``gateway/responses/``, one for each response.

Invariant: a response is found only by the API key that made it. The oldest files leave when the folder is larger than
its limit, and each of them after its retention.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ..client.json_codec import as_object, decode_json, encode_json

_ID: Final = re.compile(r"resp_[A-Za-z0-9-]{1,100}")
_log: Final = logging.getLogger(__name__)


class StoredResponse(NamedTuple):
    """One response."""

    response: dict[str, Any]
    input_items: list[dict[str, Any]]
    """The items of the whole conversation before it."""

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """Its items and those before it."""
        return [*self.input_items, *self.response["output"]]


class Origin(NamedTuple):
    """Trace, session and user of a response, by which it is erased; each is empty where the caller does not say it."""

    trace_id: str = ""
    session_id: str = ""
    user_id: str = ""
    """``user``, or ``safety_identifier``."""
    previous: str = ""
    """Id of the response that it continues, whose texts it holds too."""


_UNKNOWN: Final = Origin()


class ResponseStore:
    """The folder.

    Args:
        folder: It is created with the first response.
        max_bytes: Its limit.
        retention_s: The age after which a response is deleted.
    """

    def __init__(self, folder: Path, max_bytes: int, retention_s: float) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._retention_s = retention_s
        self._size_bytes: int | None = None

    def write(
        self, key: str, response: dict[str, Any], input_items: list[dict[str, Any]], origin: Origin = _UNKNOWN
    ) -> None:
        """Store a response. A failure is logged; the response was made nevertheless, and a later request gets 404."""
        document = {"key": _digest(key), "origin": origin._asdict(), "response": response, "input_items": input_items}
        content = encode_json(document)
        path = self._path(str(response["id"]))
        if path is None:
            return
        temporary = path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            temporary.replace(path)
            self._make_room(len(content))
        except OSError as error:
            _log.error("the response %s is not stored: %s", response["id"], error)

    def read(self, key: str, identity: str) -> StoredResponse | None:
        """Return a response of a key; None for one that is not there, or another key's."""
        path = self._path(identity)
        try:
            if path is None or path.stat().st_mtime < time.time() - self._retention_s:
                return None
            document = cast("dict[str, Any]", decode_json(path.read_bytes()))
        except OSError:
            return None
        if document["key"] != _digest(key):
            return None
        return StoredResponse(document["response"], document["input_items"])

    def delete(self, key: str, identity: str) -> bool:
        """Delete a response of a key; return whether there was one."""
        path = self._path(identity)
        if path is None or self.read(key, identity) is None:
            return False
        path.unlink(missing_ok=True)
        return True

    def _path(self, identity: str) -> Path | None:
        return self._folder / f"{identity}.json" if _ID.fullmatch(identity) else None

    def _make_room(self, added_bytes: int) -> None:
        if self._size_bytes is not None:
            self._size_bytes += added_bytes
        if self._size_bytes is None or self._size_bytes > self._max_bytes:
            files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in self._folder.glob("*.json"))
            self._size_bytes = sum(size for _, size, _ in files)
            oldest_s = time.time() - self._retention_s
            for modified_s, size, file in files:
                # A tenth more, so that not every response reads the folder.
                if modified_s >= oldest_s and self._size_bytes <= self._max_bytes * 0.9:
                    break
                file.unlink(missing_ok=True)
                self._size_bytes -= size


def erase_responses(
    folder: Path,
    *,
    response_ids: Collection[str] = (),
    trace_ids: Collection[str] = (),
    session_id: str = "",
    user_id: str = "",
) -> int:
    """Delete stored responses, and those that continue them; a gateway that runs finds them no more.

    Args:
        folder: Of the stored responses; it may be missing.
        response_ids: Their ids.
        trace_ids: Of the requests.
        session_id: Of the requests; empty for none.
        user_id: Of the requests; empty for none.

    Returns:
        The number of deleted responses.
    """
    origins = {path.stem: _origin(path) for path in folder.glob("resp_*.json")}
    erased = {
        identity
        for identity, origin in origins.items()
        if identity in response_ids
        or origin.trace_id in trace_ids
        or (session_id and origin.session_id == session_id)
        or (user_id and origin.user_id == user_id)
    }
    while following := {identity for identity, origin in origins.items() if origin.previous in erased} - erased:
        erased |= following
    for identity in erased:
        (folder / f"{identity}.json").unlink(missing_ok=True)
    return len(erased)


def _origin(path: Path) -> Origin:
    """Return the origin of a stored response; an empty one of a file that is damaged or gone."""
    try:
        fields = as_object(as_object(decode_json(path.read_bytes())).get("origin"))
    except (OSError, ValueError):
        return Origin()
    return Origin(**{name: str(fields.get(name) or "") for name in Origin._fields})


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
