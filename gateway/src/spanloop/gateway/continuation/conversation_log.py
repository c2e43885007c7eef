"""``gateway/conversations.jsonl``: which captures belong to which messages, for a restart of the gateway.

Invariant: the file holds digests and ids of captures, neither texts nor tokens. Those come from the table
``generations``, so a conversation that was forgotten there is not continued.
"""

import logging
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ..client.json_codec import as_object, decode_json, encode_json
from .token_parts import AnswerSource, Spans

_LIMIT: Final = 20_000
_log: Final = logging.getLogger(__name__)


class CaptureReference(NamedTuple):
    """One capture."""

    generation_id: str
    answer: bytes
    """Digest of the message that the client received."""
    sampled: Spans

    @property
    def response_id(self) -> str:
        """Id of its response."""
        return self.generation_id.rpartition("/")[0]


class ConversationLog:
    """The file, and its newest records in memory.

    Args:
        path: It is created with its folder.
        limit: The number of messages to remember.
    """

    def __init__(self, path: Path, *, limit: int = _LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._references: OrderedDict[bytes, list[CaptureReference]] = OrderedDict()
        self._descriptor: int | None = None
        try:
            self._open()
        except OSError as error:
            _log.warning("conversations are continued until a restart only, %s cannot be used: %s", path, error)

    def append(self, digest: bytes, reference: CaptureReference) -> None:
        """Remember a capture of the messages with this digest; a failure to write is logged."""
        self._remember(digest, reference)
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, _encode(digest, reference))
        except OSError as error:
            _log.warning("conversations are continued until a restart only, writing %s fails: %s", self._path, error)
            self.close()

    def find(self, digests: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, list[CaptureReference]]:
        """Return the captures of the longest beginning of a conversation, and its digest; as `Conversations.find`."""
        for digest, _ in digests:
            if references := self._references.get(digest):
                return digest, references
        return b"", []

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _remember(self, digest: bytes, reference: CaptureReference) -> None:
        self._references.setdefault(digest, []).append(reference)
        self._references.move_to_end(digest)
        while len(self._references) > self._limit:
            self._references.popitem(last=False)

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        for line in lines:
            try:
                self._remember(*_decode(line))
            except (ValueError, KeyError, TypeError):
                continue  # the last line of a killed process
        kept = [
            _encode(digest, reference) for digest, references in self._references.items() for reference in references
        ]
        if len(kept) != len(lines):
            temporary = self._path.with_suffix(".new")
            temporary.write_bytes(b"".join(kept))
            temporary.replace(self._path)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _encode(digest: bytes, reference: CaptureReference) -> bytes:
    sampled = reference.sampled
    ranges = [[*each, *sampled.source(at)] for at, each in enumerate(sampled.ranges)]
    record = [digest.hex(), reference.generation_id, reference.answer.hex(), ranges]
    return encode_json(record) + b"\n"


def _decode(line: bytes) -> tuple[bytes, CaptureReference]:
    record: Any = decode_json(line)
    if as_object(record) or len(record) != 4:
        raise ValueError("a line of another format")
    digest, generation_id, answer, ranges = record
    sampled = Spans()
    for first, last, *source in ranges:  # without a source in a line of an earlier release
        index, has_reasoning = source or (-1, False)
        sampled = sampled.plus(int(first), int(last), AnswerSource(int(index), has_reasoning=bool(has_reasoning)))
    return bytes.fromhex(digest), CaptureReference(str(generation_id), bytes.fromhex(answer), sampled)
