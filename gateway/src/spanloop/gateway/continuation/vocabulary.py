"""The bytes of each token of a model, read from its ``tokenizer.json``.

Invariant: the bytes of a sequence of tokens, joined, are the text that the tokenizer encodes to it. Added tokens are
those that no text is split into: the marks of roles, turns, tools and thinking. The folder also says whether prompts
keep the thinking of earlier turns (`THINKING`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, cast

import orjson

from spanloop.foundation.errors import ConfigurationError

_BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")
THINKING: Final = "thinking"
"""Key of ``tokenizer_config.json``: ``keep`` keeps the thinking that a chat template drops of earlier turns."""
KEEP: Final = "keep"
_THINKING_MARKS: Final = frozenset({b"</think>", b"<|channel|>", b"[/THINK]", b"</seed:think>"})
_MOST_BYTES: Final = 256 * 2**20
"""Of a ``tokenizer.json``; the largest known ones have 35 MB."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens of one tokenizer."""

    pieces: dict[int, bytes]
    """By token id."""
    added: frozenset[int]
    """Ids of the added tokens."""
    special: frozenset[int]
    """Those of them that engines leave out of texts."""
    keeps_thinking: bool = False
    """Whether prompts keep the sampled thinking of earlier turns, which the chat template drops."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a model folder.

        Raises:
            ConfigurationError: It has no ``tokenizer.json`` with a vocabulary.
        """
        path = folder / "tokenizer.json"
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise ConfigurationError(f"{path} has more than {_MOST_BYTES} bytes.")
            document: dict[str, Any] = orjson.loads(path.read_bytes())
            vocabulary = document["model"]["vocab"]
            is_byte_level = "ByteLevel" in set(_types(document.get("decoder"), document.get("pre_tokenizer")))
            pieces = {
                token_id: _piece_bytes(piece, is_byte_level=is_byte_level) for piece, token_id in _entries(vocabulary)
            }
            marks: list[dict[str, Any]] = document.get("added_tokens") or []
            added = {int(token["id"]): str(token["content"]).encode() for token in marks}
            config = folder / "tokenizer_config.json"
            keeps_thinking = config.exists() and orjson.loads(config.read_bytes()).get(THINKING) == KEEP
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} cannot be read as a tokenizer: {type(error).__name__}: {error}"
            ) from error
        special = frozenset(int(token["id"]) for token in marks if token.get("special"))
        return cls(pieces | added, frozenset(added), special, keeps_thinking)

    @property
    def marks_thinking(self) -> bool:
        """Whether it has marks of thinking, which engines parse in chats."""
        return not _THINKING_MARKS.isdisjoint(self.pieces[token_id] for token_id in self.added)

    def piece(self, token_id: int) -> bytes:
        """Return the bytes of a token; an unknown id has none."""
        return self.pieces.get(token_id, b"")

    def text(self, token_ids: Iterable[int]) -> bytes:
        """Return the bytes of tokens; an unknown id has none."""
        return b"".join([self.pieces.get(token_id, b"") for token_id in token_ids])


def _entries(vocabulary: Any) -> Iterator[tuple[str, int]]:
    if isinstance(vocabulary, dict):
        yield from cast("dict[str, int]", vocabulary).items()
    else:
        # A Unigram model: pieces with their scores, in the order of their ids.
        yield from ((piece, token_id) for token_id, (piece, _) in enumerate(vocabulary))


def _types(*parts: Any) -> Iterator[str]:
    """Yield the types of a tokenizer's parts, those in sequences included."""
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            fields = cast("dict[str, Any]", part)
            yield str(fields.get("type"))
            waiting += [*(fields.get("decoders") or []), *(fields.get("pretokenizers") or [])]


def _piece_bytes(piece: str, *, is_byte_level: bool) -> bytes:
    if is_byte_level:
        try:
            return bytes([_BYTES[character] for character in piece])
        except KeyError:
            return piece.encode()
    if match := _BYTE_PIECE.fullmatch(piece):
        return bytes([int(match[1], 16)])
    return piece.replace("\u2581", " ").encode()


def _byte_characters() -> dict[str, int]:
    """Return the byte of each character in GPT-2's byte-level alphabet (``bytes_to_unicode``)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES: Final = _byte_characters()
