"""Sessions: which calls belong together, and since when the gateway knows a session.

Invariant: a session's first call is on disk (in the kernel's page cache) before the call is answered, so a kill of the
gateway changes no session's age. The last 100,000 sessions are remembered; an older one counts as new.
"""

import hashlib
import logging
import os
import struct
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers

from ..client.json_codec import as_list, as_object, encode_json
from .request import TraceContext

SESSION_HEADER: Final = "x-session-id"
_BAGGAGE_KEYS: Final = ("session.id", "gen_ai.conversation.id")
_RECORD: Final = struct.Struct("<QQ")
_LIMIT: Final = 100_000
_BEGINNING: Final = 1000
"""Characters of a text."""
_MICROSECONDS: Final = 1e6
_log: Final = logging.getLogger(__name__)


def session_of(headers: Headers, trace: TraceContext) -> str:
    """Return the session of a call; empty when the caller says none.

    That is the header ``x-session-id``, else ``session.id`` or ``gen_ai.conversation.id`` of the W3C ``baggage``, else
    the trace id of ``traceparent``.
    """
    if session := headers.get(SESSION_HEADER, "").strip():
        return session
    members = [member.split(";")[0].partition("=") for line in headers.getlist("baggage") for member in line.split(",")]
    baggage = {unquote(key.strip()): unquote(value.strip()) for key, _, value in members}
    return next((baggage[key] for key in _BAGGAGE_KEYS if baggage.get(key)), trace.trace_id)


def conversation_of(session: str, key: str, document: Mapping[str, Any]) -> bytes:
    """Return what the requests of one conversation share: the session, else the key and the beginning of its texts.

    Args:
        session: Of the call; empty without one.
        key: The caller's.
        document: The request, a chat or a text completion.
    """
    if session:
        return session.encode("utf-8", "surrogatepass")
    texts = [as_object(message).get("content") for message in as_list(document.get("messages"))[:2]]
    beginning = [text[:_BEGINNING] if isinstance(text, str) else None for text in (*texts, document.get("prompt"))]
    return encode_json([key, beginning])


def fraction_of(session: str, salt: str) -> float:
    """Return a number from 0 to below 1 that is always the same for a session and a salt, and uniform over sessions."""
    return int.from_bytes(_digest(f"{salt}\0{session}")[:6]) / 2**48


def pseudonym_of(session: str, salt: str) -> str:
    """Return a name of a session that does not tell its id: 32 hex digits."""
    return _digest(f"pseudonym\0{salt}\0{session}")[:16].hex()


class SessionLog:
    """``gateway/sessions``: when each session's first call came.

    Args:
        path: The file; it is created with its folder.
        limit: The number of sessions to remember.
    """

    def __init__(self, path: Path, *, limit: int = _LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._first_seen_us: OrderedDict[int, int] = OrderedDict()
        self._descriptor: int | None = None
        self._is_broken = False
        self._open()

    def first_seen_s(self, session: str, now_s: float) -> float:
        """Return the time of the session's first call, which is this one if it is unknown; seconds since the epoch."""
        key = _key(session)
        seen_us = self._first_seen_us.get(key)
        if seen_us is None:
            seen_us = self._remember(key, int(now_s * _MICROSECONDS))
        self._first_seen_us.move_to_end(key)
        return seen_us / _MICROSECONDS

    def age(self, session: str) -> None:
        """Let the session count as older than every canary."""
        self._remember(_key(session), 0)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _remember(self, key: int, first_seen_us: int) -> int:
        self._first_seen_us[key] = first_seen_us
        if len(self._first_seen_us) > self._limit:
            self._first_seen_us.popitem(last=False)
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, _RECORD.pack(key, first_seen_us))
            except OSError as error:
                if not self._is_broken:
                    _log.warning("sessions are remembered in memory only, writing %s fails: %s", self._path, error)
                self._is_broken = True
        return first_seen_us

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            content = self._path.read_bytes() if self._path.exists() else b""
            whole = len(content) - len(content) % _RECORD.size
            for key, first_seen_us in _RECORD.iter_unpack(content[:whole]):
                self._first_seen_us[key] = first_seen_us
                self._first_seen_us.move_to_end(key)
            while len(self._first_seen_us) > self._limit:
                self._first_seen_us.popitem(last=False)
            compact = b"".join(_RECORD.pack(*item) for item in self._first_seen_us.items())
            if len(compact) != len(content):
                temporary = self._path.with_suffix(".new")
                temporary.write_bytes(compact)
                temporary.replace(self._path)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            _log.warning("sessions are remembered in memory only, %s cannot be used: %s", self._path, error)


def _key(session: str) -> int:
    return int.from_bytes(_digest(session)[:8])


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
