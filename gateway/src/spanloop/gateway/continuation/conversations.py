"""The conversations that can be continued exactly: token ids by the messages that led to them.

Invariant: an entry is found only by a request of the same key, model and tokenizer whose messages begin with the
entry's own. The least recently used entries leave first when the limit of memory is reached.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..client.json_codec import as_object, encode_json
from .message_text import canonical_calls, canonical_message, text_of
from .token_parts import Spans

_MOST_OF_ONE_PROMPT: Final = 64
"""Entries with the same messages: the rollouts of a group."""
_ID_BYTES: Final = 4
_ENTRY_BYTES: Final = 400


class Exact(NamedTuple):
    """What an engine saw and sampled for one request."""

    token_ids: Sequence[int]
    """Of the prompt and of what was sampled, in 4 bytes each."""
    sampled: Spans
    answer: bytes
    """Digest of the message that the client received."""


class Scope(NamedTuple):
    """Who may continue a conversation: the same key on the same model and tokenizer."""

    key: str
    model: str
    tokenizer: str


class Conversations:
    """Entries in memory.

    Args:
        max_bytes: Limit of the memory for token ids.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, list[Exact]] = OrderedDict()
        self.size_bytes = 0

    def add(self, digest: bytes, entry: Exact) -> None:
        """Keep an entry for the messages with this digest."""
        entries = self._entries.setdefault(digest, [])
        self._entries.move_to_end(digest)
        entries.append(entry)
        self.size_bytes += _size_bytes(entry)
        if len(entries) > _MOST_OF_ONE_PROMPT:
            self.size_bytes -= _size_bytes(entries.pop(0))
        while self.size_bytes > self._max_bytes and self._entries:
            _, oldest = self._entries.popitem(last=False)
            self.size_bytes -= sum(map(_size_bytes, oldest))

    def find(self, digests: "Sequence[tuple[bytes, bytes]]") -> list[Exact]:
        """Return the entries of the longest beginning of a conversation; those with the client's answer first.

        Args:
            digests: For each answer in the messages, from the last to the first: the digest of the messages before it,
                and that of the answer.
        """
        for digest, answer in digests:
            entries = self._entries.get(digest)
            if entries:
                self._entries.move_to_end(digest)
                same = [entry for entry in reversed(entries) if entry.answer == answer]
                return same or list(reversed(entries))
        return []


def message_digest(scope: Scope, messages: Sequence[Any]) -> bytes:
    """Return the digest of messages within a scope."""
    *_, (_, digest) = _rolling(scope, messages)
    return digest


def answer_digests(scope: Scope, messages: Sequence[Any]) -> list[tuple[bytes, bytes]]:
    """Return what `Conversations.find` takes for the messages of a request."""
    digests = list(_rolling(scope, messages))
    answers = [
        (digests[at][1], answer_digest(as_object(message)))
        for at, message in enumerate(messages)
        if at and as_object(message).get("role") == "assistant"
    ]
    return answers[::-1]


def answer_digest(message: Mapping[str, Any]) -> bytes:
    """Return the digest of an assistant's message: its text and its tool calls."""
    return _hash(encode_json([text_of(message.get("content")), canonical_calls(message)])).digest()


def _rolling(scope: Scope, messages: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """Yield the digest of the first 0, 1, 2, … messages."""
    state = _hash(encode_json(list(scope)))
    yield 0, state.digest()
    for count, message in enumerate(messages, start=1):
        state.update(_hash(encode_json(canonical_message(message))).digest())
        yield count, state.digest()


def _hash(data: bytes) -> "hashlib.blake2b":
    return hashlib.blake2b(data, digest_size=16)


def _size_bytes(entry: Exact) -> int:
    return len(entry.token_ids) * _ID_BYTES + _ENTRY_BYTES
