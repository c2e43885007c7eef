"""The message log of a batch: each distinct message is read once, and histories share their beginnings.

Agents send their whole history with every call. Invariant: messages with equal JSON are one object, and histories with
equal messages are one `History`, so whatever belongs to a history is computed once.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from .codec import MalformedMessagesError, parse_json
from .facts import NO_FACTS, Facts
from .model import Message
from .view import read_message, system_fields

_IDENTITY_BYTES: Final = array("Q").itemsize
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class History(msgspec.Struct, eq=False, gc=False):
    """Messages in their order, as the last of them and the history before it."""

    before: "History | None"
    message: Message | None
    """The last message; None where there is none."""
    length: int
    number: int
    """Equal for histories of the log whose messages have equal content; 0 without a message."""
    last_assistant: int | None
    """Position of the newest assistant message."""
    assistant_number: int
    """Number of the history that ends with the newest assistant message; 0 without one."""
    user: Message | None
    """The first user message."""
    user_number: int
    """Number of the history that ends with the first user message; 0 without one."""
    system_number: int
    """Number of a history of the system messages alone."""
    cached_messages: tuple[Message, ...] | None = None
    cached_facts: Facts | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages."""
        if self.cached_messages is None:
            node, new = self, list[Message]()
            while (known := node.cached_messages) is None and node.before is not None and node.message is not None:
                new.append(node.message)
                node = node.before
            self.cached_messages = (*(known or ()), *reversed(new))
        return self.cached_messages

    def since(self, length: int) -> list[Message]:
        """The messages behind the first ``length``."""
        node, newest_first = self, list[Message]()
        while node.length > length and node.before is not None and node.message is not None:
            newest_first.append(node.message)
            node = node.before
        return newest_first[::-1]

    def first(self, length: int) -> "History":
        """The history of the first ``length`` messages."""
        node = self
        while node.length > length and node.before is not None:
            node = node.before
        return node

    @property
    def facts(self) -> Facts:
        """Facts about the messages as a whole."""
        if self.cached_facts is None:
            node = self.before
            while node is not None and node.cached_facts is None:
                node = node.before
            known = NO_FACTS if node is None or node.cached_facts is None else node.cached_facts
            self.cached_facts = known.further(self)
        return self.cached_facts


NO_HISTORY: Final = History(None, None, 0, 0, None, 0, None, 0, 0, (), NO_FACTS)


class MessageLog:
    """Messages and histories of one batch."""

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, Message] = {}
        self._by_json: dict[str, Message] = {}
        self._by_object: dict[int, tuple[object, Message]] = {}
        self._longer: dict[tuple[int, int], History] = {}
        self._numbers: dict[tuple[int, tuple[str, ...]], int] = {}
        self._last: dict[tuple[str, str], tuple[str, History]] = {}
        self._last_objects: dict[tuple[str, str], tuple[bytes, History]] = {}

    def tool_answers(self) -> Iterator[str]:
        """The tools' answers in all messages."""
        for message in self._by_json.values():
            for response in message.tool_responses:
                yield response.content

    def read(self, text: str) -> tuple[Message, ...]:
        """Messages out of ``[{"role", "parts": […], "finish_reason"?}, …]``.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of such objects.
        """
        try:
            items = _ITEMS(text)
        except (ValueError, RecursionError):
            listed = parse_json(text)
            if not isinstance(listed, list):
                raise MalformedMessagesError(f"expected a list of messages, got {type(listed).__name__}") from None
            return tuple([read_message(item, self._by_json) for item in cast("list[object]", listed)])
        known = self._by_bytes
        return tuple([known.get(encoded) or self._of_bytes(encoded) for encoded in map(bytes, items)])

    def of_objects(self, objects: Sequence[object]) -> tuple[Message, ...]:
        """Messages out of decoded objects, which must not change; an object that comes again is not looked at again.

        Raises:
            MalformedMessagesError: When one of them is no message.
        """
        known = self._by_object
        return tuple([(known.get(id(item)) or self._of_object(item))[1] for item in objects])

    def history(self, messages: Iterable[Message], system: str = "") -> History:
        """The history that consists of ``messages``.

        Args:
            messages: In their order.
            system: Instructions that came beside them: the first message, unless that is the system's anyway.
        """
        new = tuple(messages)
        if system and not (new and new[0].role == "system"):
            new = (read_message(system_fields(system), self._by_json), *new)
        return self._extended(NO_HISTORY, new)

    def read_history(self, text: str, place: str = "", system: str = "") -> History:
        """As ``read``; a text that begins with the one that was read last at the same place is read behind it.

        Args:
            text: The list; empty for none.
            place: Where it is from, such as a trace.
            system: See ``history``.

        Raises:
            MalformedMessagesError: When the text is not JSON or not a list of messages.
        """
        begun, history = self._last.get((place, system), ("", NO_HISTORY))
        if begun and text.startswith(begun) and (rest := text[len(begun) :].lstrip())[:1] in {",", "]"}:
            history = self._extended(history, self.read("[" + (rest[1:] if rest[0] == "," else rest)))
        else:
            history = self.history(self.read(text) if text else (), system)
        if text and history.length:
            self._last[place, system] = text.rstrip()[:-1].rstrip(), history
        return history

    def history_of_objects(self, objects: Sequence[object], place: str = "", system: str = "") -> History:
        """As ``read_history``, of decoded objects; see ``of_objects``."""
        identities = array("Q", map(id, objects)).tobytes()
        begun, history = self._last_objects.get((place, system), (b"", NO_HISTORY))
        if begun and identities.startswith(begun):
            history = self._extended(history, self.of_objects(objects[len(begun) // _IDENTITY_BYTES :]))
        else:
            history = self.history(self.of_objects(objects), system)
        self._last_objects[place, system] = identities, history
        return history

    def number(self, before: int, message: Message) -> int:
        """The number of a history: that of the history before its last message, and this message."""
        return self._numbers.setdefault((before, message.content), len(self._numbers) + 1)

    def _extended(self, history: History, messages: Iterable[Message]) -> History:
        longer = self._longer
        for message in messages:
            history = longer.get((id(history), id(message))) or self._add(history, message)
        return history

    def _add(self, before: History, message: Message) -> History:
        number, role = self.number(before.number, message), message.role
        last_assistant, assistant_number = before.last_assistant, before.assistant_number
        user, user_number, system_number = before.user, before.user_number, before.system_number
        if role == "assistant":
            last_assistant, assistant_number = before.length, number
        elif role == "user" and user is None:
            user, user_number = message, number
        elif role == "system":
            system_number = self.number(system_number, message)
        history = self._longer[id(before), id(message)] = History(
            before,
            message,
            before.length + 1,
            number,
            last_assistant,
            assistant_number,
            user,
            user_number,
            system_number,
        )
        return history

    def _of_object(self, item: object) -> tuple[object, Message]:
        read = self._by_object[id(item)] = item, read_message(item, self._by_json)
        return read

    def _of_bytes(self, encoded: bytes) -> Message:
        message = self._by_bytes[encoded] = read_message(parse_json(encoded), self._by_json)
        if message.finish_reason:
            self._expect(message, encoded)
        return message

    def _expect(self, output: Message, encoded: bytes) -> None:
        """Add an output as the next call's input will repeat it: without its finish reason."""
        end = f',"finish_reason":"{output.finish_reason}"}}'
        if output.json.endswith(end):
            json = output.json.removesuffix(end) + "}"
            without_reason = self._by_json.setdefault(json, replace(output, finish_reason="", json=json))
            self._by_bytes.setdefault(without_reason.json.encode("utf-8", "surrogatepass"), without_reason)
            spaced = f', "finish_reason": "{output.finish_reason}"}}'.encode("utf-8", "surrogatepass")
            if encoded.endswith(spaced):
                self._by_bytes.setdefault(encoded.removesuffix(spaced) + b"}", without_reason)


def parse_messages(text: str) -> tuple[Message, ...]:
    """As ``MessageLog.read``, for one text."""
    return MessageLog().read(text)
