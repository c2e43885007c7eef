"""Lists of messages as JSON text → messages, each distinct one decoded and looked at once.

Agents send their whole history with every call. A list that begins with the one that was read last at the same place
goes on behind it; in any other, messages that were read before are found by their text.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, cast

import msgspec

from .codec import MalformedMessagesError, parse_json
from .facts import NO_FACTS, Facts
from .model import Message, chain
from .view import parse_system_instructions, read_message

_PIECES: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Conversation(NamedTuple):
    """Messages, and the running digest after each of them."""

    messages: tuple[Message, ...]
    chain: tuple[bytes, ...]
    facts: Facts


NOTHING_SAID: Final = Conversation((), (), NO_FACTS)


class MessageReader:
    """Reads the lists of one batch; keeps each distinct message."""

    def __init__(self) -> None:
        self._known: dict[bytes, Message] = {}
        self._last: dict[tuple[str, str], tuple[str, Conversation]] = {}

    def read(self, text: str) -> tuple[Message, ...]:
        """Messages out of ``[{"role", "parts": […], "finish_reason"?}, …]``.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of such objects.
        """
        try:
            pieces = _PIECES(text)
        except (ValueError, RecursionError):
            found = parse_json(text)
            if not isinstance(found, list):
                raise MalformedMessagesError(f"expected a list of messages, got {type(found).__name__}") from None
            return tuple([read_message(item) for item in cast("list[object]", found)])
        known = self._known
        return tuple([known.get(piece) or self._new(piece) for piece in map(bytes, pieces)])

    def read_conversation(self, text: str, place: str = "", system: str = "") -> Conversation:
        """As ``read``, with the digests.

        Args:
            text: The list; empty for none.
            place: Where it is from, such as a trace: what was read there last is probably what it goes on from.
            system: Instructions that were told beside the list: its first message, unless that is the system's anyway.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of messages.
        """
        begun, before = self._last.get((place, system), _NOTHING)
        if begun and text.startswith(begun) and (rest := text[len(begun) :].lstrip())[:1] in {",", "]"}:
            new = self.read("[" + (rest[1:] if rest[0] == "," else rest))
        else:
            before = NOTHING_SAID
            new = self.read(text) if text else ()
            if system and not (new and new[0].role == "system"):
                new = (parse_system_instructions(system), *new)
        if new:
            messages = before.messages + new
            running = before.chain + chain(new, before.chain[-1] if before.chain else b"")
            before = Conversation(messages, running, before.facts.further(messages))
            if text:
                self._last[place, system] = text.rstrip()[:-1].rstrip(), before
        return before

    def tool_answers(self) -> Iterator[str]:
        """The tools' answers in the messages that were read."""
        for message in self._known.values():
            for response in message.tool_responses:
                yield response.content

    def _new(self, piece: bytes) -> Message:
        message = self._known[piece] = read_message(parse_json(piece))
        if message.finish_reason:
            self._expect(message, piece)
        return message

    def _expect(self, said: Message, piece: bytes) -> None:
        """What the model said comes back in the input of the next call, where it has no finish reason."""
        end = f',"finish_reason":"{said.finish_reason}"}}'
        if said.json.endswith(end):
            bare = said._replace(finish_reason="", json=said.json.removesuffix(end) + "}")
            self._known.setdefault(bare.json.encode("utf-8", "surrogatepass"), bare)
            spaced = f', "finish_reason": "{said.finish_reason}"}}'.encode("utf-8", "surrogatepass")
            if piece.endswith(spaced):
                self._known.setdefault(piece.removesuffix(spaced) + b"}", bare)


_NOTHING: Final = ("", NOTHING_SAID)


def parse_messages(text: str) -> tuple[Message, ...]:
    """As ``MessageReader.read``, for one text."""
    return MessageReader().read(text)
