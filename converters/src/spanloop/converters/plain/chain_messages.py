"""The messages of conversations that grow call by call: decoded some hundred at a time, looked at once, let go.

Invariant: what is kept of a message is what ``chains`` asks about, and whether anything in it is unusual.
"""

from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..attributes import Mask
from ..attributes import Rows as Numbers
from ..ragged import lines
from ..usual import Call, Response, Text, Typed
from .lanes import instructions
from .pieces import NotPlainError, Piece, decoded_blocks, digest_of, digest_of_text

_FURTHER: Final = frozenset({"user", "tool"})
"""Roles of what comes after an answer."""


class Answers(NamedTuple):
    """What calls answered."""

    asked: list[Call]
    """Tool calls, one answer's after another's."""
    ids: list[str]
    names: list[str]
    """Both of ``asked``."""
    counts: Numbers
    """Of each answer: how many it has of them."""
    texts: list[str]
    """Of each answer: what it says, stripped."""
    reasons: pl.Series
    """Of each answer: its finish reason, as it was given."""
    json: pl.Series
    """Of each answer: it and nothing else, as a list."""
    is_fine: Mask
    """Of each answer: whether it is one message of the model, of words and tool calls."""

    def only(self, kept: Mask) -> "Answers":
        """Those of some calls."""
        of_asked, chosen = np.repeat(kept, self.counts).tolist(), pl.Series(kept)
        return Answers(
            list(compress(self.asked, of_asked)),
            list(compress(self.ids, of_asked)),
            list(compress(self.names, of_asked)),
            self.counts[kept],
            list(compress(self.texts, kept.tolist())),
            self.reasons.filter(chosen),
            self.json.filter(chosen),
            self.is_fine[kept],
        )


class Opening(NamedTuple):
    """How a conversation begins."""

    start: tuple[bytes, ...]
    """Digests of the messages up to the user's first."""
    question: str
    """That one's text."""
    before: str
    """JSON that stands before the messages in the first state: a system prompt that was told beside them."""


class News(NamedTuple):
    """What is new in the inputs of calls."""

    ids: list[str]
    """Of the calls that tools answered, one input's after another's."""
    contents: list[str]
    """What they answered."""
    counts: Numbers
    """Of each input: how many answers it has."""
    openings: dict[int, Opening]
    """Number of the conversation → how it begins."""
    json: pl.Series
    """Of each input: what is new, as a list."""
    is_fine: Mask
    """Of each input: whether it begins a conversation as usual, or has words of the user and answers of tools."""

    def only(self, kept: Mask) -> "News":
        """Those of some calls."""
        of_answer = np.repeat(kept, self.counts).tolist()
        return News(
            list(compress(self.ids, of_answer)),
            list(compress(self.contents, of_answer)),
            self.counts[kept],
            self.openings,
            self.json.filter(pl.Series(kept)),
            self.is_fine[kept],
        )


def read_answers(texts: pl.Series) -> Answers:
    """Read the answers of calls, lists of messages as JSON."""
    asked: list[Call] = []
    ids: list[str] = []
    names: list[str] = []
    counts, said = [0] * len(texts), [""] * len(texts)
    reasons: list[str] = []
    json: list[bytes] = []
    odd: list[int] = []
    for messages, line in decoded_blocks(texts):
        json.append(line)
        for listed in messages:
            place = len(reasons)
            one = listed[0] if len(listed) == 1 else _NO_ANSWER
            reasons.append(one.finish_reason)
            parts = one.parts
            part = parts[0] if len(parts) == 1 else None
            if isinstance(part, Call):
                asked.append(part)
                ids.append(part.id)
                names.append(part.name)
                counts[place] = 1
            elif isinstance(part, Text):
                said[place] = part.content.strip()
            else:
                own = [other for other in parts if isinstance(other, Call)]
                words = [other.content for other in parts if isinstance(other, Text)]
                own_ids = [other.id for other in own]
                if len(own) + len(words) < len(parts) or len(set(own_ids)) < len(own):
                    odd.append(place)
                asked += own
                ids += own_ids
                names += [other.name for other in own]
                counts[place] = len(own)
                said[place] = "".join(words).strip()
            if one.role != "assistant":
                odd.append(place)
    told = pl.Series("given_reason", reasons, dtype=pl.String)
    return Answers(asked, ids, names, np.array(counts), said, told, lines(json), _all_but(odd, len(texts)))


_NO_ANSWER: Final = Typed("tool", [])


def read_news(texts: pl.Series, chains: Numbers, begins: Mask, systems: pl.Series) -> News:
    """Read what is new in the inputs of calls.

    Args:
        texts: Lists of messages as JSON: whole where a conversation begins, else those beyond the answer before.
        chains: The number of each call's conversation.
        begins: Whether the call begins a conversation.
        systems: The system prompt that was told beside the messages; empty without one.
    """
    ids: list[str] = []
    contents: list[str] = []
    counts = [0] * len(texts)
    json: list[bytes] = []
    odd: list[int] = []
    openings: dict[int, Opening] = {}
    opener = _Opener()
    firsts = {
        place: (chain, system)
        for place, chain, system in zip(
            np.flatnonzero(begins).tolist(), chains[begins].tolist(), systems.filter(pl.Series(begins)), strict=True
        )
    }
    seen = 0
    for block, line in decoded_blocks(texts):
        json.append(line)
        for place, messages in enumerate(block, seen):
            if place in firsts:
                chain, system = firsts[place]
                opening = opener.read(system, messages)
                if opening is None:
                    odd.append(place)
                else:
                    openings[chain] = opening
                continue
            if not messages:
                odd.append(place)
            for message in messages:
                parts = message.parts
                part = parts[0] if len(parts) == 1 else None
                if isinstance(part, Response):
                    ids.append(part.id)
                    contents.append(part.response)
                    counts[place] += 1
                else:
                    own = [other for other in parts if isinstance(other, Response)]
                    ids += [other.id for other in own]
                    contents += [other.response for other in own]
                    counts[place] += len(own)
                if message.role not in _FURTHER or (message.role == "tool" and not _answers(parts)):
                    odd.append(place)
        seen += len(block)
    return News(ids, contents, np.array(counts), openings, lines(json), _all_but(odd, len(texts)))


def _answers(parts: Sequence[object]) -> bool:
    return any(isinstance(part, Response) for part in parts)


def _all_but(odd: Sequence[int], count: int) -> Mask:
    found = np.ones(count, dtype=np.bool_)
    found[np.array(odd, dtype=np.int64)] = False
    return found


class _Opener:
    """Reads how conversations begin."""

    def __init__(self) -> None:
        self._pieces: dict[str, Piece | None] = {}
        self._digests: dict[tuple[str, str], bytes] = {}

    def read(self, system: str, messages: Sequence[Typed]) -> Opening | None:
        """The beginning of a conversation; None for an unusual one."""
        found: list[bytes] = []
        question: str | None = None
        says_something = False
        before = ""
        if system and not any(message.role == "system" for message in messages):
            piece = self._instructions(system)
            if piece is None:
                return None
            found.append(digest_of(piece))
            says_something = bool(piece.parts)
            before = f"{piece.json},"
        for message in messages:
            words = [part.content for part in message.parts if isinstance(part, Text)]
            is_in_place = message.role == "user" or (message.role == "system" and question is None)
            if len(words) < len(message.parts) or not is_in_place:
                return None
            says_something = says_something or bool(words)
            if question is None:
                text = "".join(words)
                found.append(self._digest(message.role, text))
                question = text if message.role == "user" else None
        return Opening(tuple(found), question, before) if question is not None and says_something else None

    def _instructions(self, text: str) -> Piece | None:
        if text not in self._pieces:
            try:
                self._pieces[text] = instructions(text)
            except NotPlainError:
                self._pieces[text] = None
        return self._pieces[text]

    def _digest(self, role: str, text: str) -> bytes:
        found = self._digests.get((role, text))
        if found is None:
            found = self._digests[role, text] = digest_of_text(role, text)
        return found
