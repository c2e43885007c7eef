"""Traces whose calls asked for no tool, and of which no call continues another: a history that is not what was said.

Somebody else wrote it (a simulated user, a prompt that is put together anew, an instrumentor that tells it otherwise),
so every call stands by itself, and those of one agent with one system prompt and one question follow one another.

Invariant: a trace that gets through here has the steps that ``stitch`` and ``steps`` would give it, provided that no
call of any trace gave the answer that ends a call's history (``Talk.awaits``). What a call repeats of the call before
is compared as text and never read again.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..attribution.broken_output import is_call_as_text
from ..finish_reasons import TOOL_CALL, canonical_finish_reason
from ..messages import digest
from ..usual import Call, Response, Text, Typed
from .lanes import UNFINISHED, Calls, Steps
from .pieces import NotPlainError, Piece, read_lists

_ASKS: Final = '"tool_call"'
_MOST_ALIKE: Final = 2
"""An answer that comes more often in one thread may be part of a circle: see ``attribution.loop``."""


class Said(NamedTuple):
    """A call by itself, with what ``lanes.Lane`` has of a conversation."""

    start: tuple[bytes, ...]
    question: str
    answer: str


class Talk(NamedTuple):
    """What was said in a trace."""

    said: list[Said]
    """One for each call."""
    awaits: set[str]
    """The newest answers in the histories of the calls, stripped."""
    answered: set[str]
    """Ids of tool calls that the histories tell the answers of."""


NO_TALK: Final = Talk([], set(), set())


class _Seen(NamedTuple):
    """What a call's input has."""

    text: str
    """Less its last bracket."""
    system: tuple[str | bytes, ...]
    """Signs of the system messages: see ``_sign``."""
    start: tuple[bytes, ...]
    """Digests of the messages up to the user's first; empty without one."""
    question: str
    answer: str | None
    """The newest answer, stripped; None without one."""
    is_orphan: bool
    """Whether a tool answers: nobody asked one."""
    json: str
    """The messages without brackets; empty where they are written so in ``text``."""


_NOTHING: Final = _Seen("", (), (), "", None, False, "")


class TalkReader:
    """Reads traces of which no call asked for a tool."""

    def __init__(self, calls: Calls, steps: Steps, offered: Sequence[str | None], traces: Sequence[range]) -> None:
        """Read all that is new in the calls of ``traces``.

        Args:
            calls: Columns of all calls.
            steps: What is found out.
            offered: The canonical tool definitions that ``calls.tools`` counts; None for those that cannot be read.
            traces: The calls of each trace that will be read.
        """
        self._calls = calls
        self._steps = steps
        self._offered = offered
        places = [call for trace in traces for call in trace]
        self._answers = dict(zip(places, read_lists([calls.output[call] for call in places]), strict=True))
        self._goes_on: dict[int, bool] = {}
        told: list[str] = []
        for trace in traces:
            before = ""
            for call in trace:
                text = calls.input[call]
                length = len(before)
                goes_on = bool(before) and text.startswith(before) and text[length : length + 1] in {",", "]"}
                self._goes_on[call] = goes_on
                told.append(
                    "[" + text[length + 1 :] if goes_on and length + 1 < len(text) else "[]" if goes_on else text
                )
                before = text[:-1] if text[-2:] == "}]" else ""
        self._news = dict(zip(places, read_lists(told), strict=True))
        self._digests: dict[tuple[str, str], bytes] = {}

    def read(self, calls: range) -> Talk | None:
        """What was said in one trace; None where a call may continue another one of it, or something is unusual."""
        try:
            found = self._read(calls)
        except NotPlainError:
            found = None
        if found is None or not found.awaits.isdisjoint(said.answer for said in found.said):
            for call in calls:
                self._steps.following[call] = None
            return None
        return found

    def _read(self, calls: range) -> Talk:
        column, steps = self._calls, self._steps
        newest: dict[tuple[str, tuple[str | bytes, ...], bytes], int] = {}
        alike: Counter[tuple[object, str]] = Counter()
        said: list[Said] = []
        awaits: set[str] = set()
        answered: set[str] = set()
        seen = _NOTHING
        for call in calls:
            seen = self._seen(call, seen, answered)
            answer = self._answer(call)
            thread = (column.agent[call], seen.system, seen.start[-1])
            alike[thread, answer] += 1
            if alike[thread, answer] > _MOST_ALIKE:
                raise NotPlainError
            before = newest.get(thread)
            if before is not None:
                steps.following[before] = call
            newest[thread] = call
            steps.first[call] = call
            steps.is_orphan[call] = seen.is_orphan
            steps.state[call] = None if not seen.json else "[" + seen.json
            said.append(Said(seen.start, seen.question, answer))
            if seen.answer is not None:
                awaits.add(seen.answer)
        return Talk(said, awaits, answered)

    def _seen(self, call: int, before: _Seen, answered: set[str]) -> _Seen:
        column, news, goes_on = self._calls, self._news[call], self._goes_on[call]
        if news is None or column.system[call] or column.is_exact[call]:
            raise NotPlainError
        text = column.input[call]
        _, system, start, question, answer, is_orphan, json = before if goes_on else _NOTHING
        if not start:
            start, question = self._opening(news.messages)
        for message in news.messages:
            if message.role == "system":
                system = (*system, _sign(message))
            elif message.role == "assistant":
                answer = _text(message).strip()
            elif ids := _answered(message):
                answered.update(ids)
                is_orphan = True
        if json or not news.is_as_written:
            told = [json or before.text[1:]] if goes_on else []
            json = ",".join([*told, news.json] if news.json else told)
        return _Seen(text[:-1], system, start, question, answer, is_orphan, json)

    def _opening(self, messages: Sequence[Piece | Typed]) -> tuple[tuple[bytes, ...], str]:
        """The digests of the messages up to the user's first, and its text."""
        found: list[bytes] = []
        for message in messages:
            if message.role not in {"system", "user"} or not message.parts:
                break
            found.append(self._digest(message))
            if message.role == "user":
                return tuple(found), _text(message)
        raise NotPlainError

    def _answer(self, call: int) -> str:
        column, steps, listed = self._calls, self._steps, self._answers[call]
        if listed is None or len(listed.messages) != 1 or self._offered[column.tools[call]] is None:
            raise NotPlainError
        said = listed.messages[0]
        answer = _text(said).strip()
        reason = column.finish_reason[call] or canonical_finish_reason(said.finish_reason)
        if (
            said.role != "assistant"
            or not answer
            or reason in UNFINISHED
            or reason == TOOL_CALL
            or (column.is_streaming[call] and not reason)
            or is_call_as_text(answer)
        ):
            raise NotPlainError
        steps.action[call] = listed.json
        steps.answer[call] = answer
        steps.finish_reason[call] = reason
        return answer

    def _digest(self, message: Piece | Typed) -> bytes:
        """``Message.digest``."""
        if isinstance(message, Piece) and message.digest:
            return message.digest
        key = message.role, _text(message).strip()
        found = self._digests.get(key)
        if found is None:
            found = self._digests[key] = _digest_of_text(*key)
        return found


def asks_for_nothing(output: str) -> bool:
    """Whether an answer asks for no tool, at a glance."""
    return _ASKS not in output


def _answered(message: Piece | Typed) -> list[str]:
    """The calls that a message of a tool or the user has answers to."""
    parts = message.parts
    if any(isinstance(part, Call) for part in parts):
        raise NotPlainError
    ids = [part.id for part in parts if isinstance(part, Response)]
    if not all(ids):
        raise NotPlainError  # may continue any call that asked for so many tools: see ``stitch.untold``
    return ids


def _sign(message: Piece | Typed) -> str | bytes:
    """What messages of one role have in common exactly if their digests are the same."""
    text = _text(message).strip()
    is_more = isinstance(message, Piece) and message.digest not in {b"", _digest_of_text(message.role, text)}
    return message.digest if is_more and isinstance(message, Piece) else text


def _digest_of_text(role: str, text: str) -> bytes:
    return digest((role, f"text:{text}"))


def _text(message: Piece | Typed) -> str:
    parts = message.parts
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].content
    texts = [part.content for part in message.parts if isinstance(part, Text)]
    if len(texts) < len(message.parts):
        raise NotPlainError
    return "".join(texts)
