"""Whether a history is whole: every answer of a tool has its call in it, and every call its answer.

Invariant: what is missing is evident. Ids that differ and answers that come late are put up with, and so is a call that
the user did not wait for; a history without any of these is one that no API would have taken.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from .model import Message

NO_CALL: Final = "answers a tool call that is not in it"
NO_ANSWER: Final = "a tool call in it has no answer"


class MessageHistory(Protocol):
    """The messages of a history of the log."""

    @property
    def length(self) -> int:
        """The number of messages."""
        ...

    @property
    def messages(self) -> tuple["Message", ...]:
        """The messages."""
        ...

    def since(self, length: int) -> list["Message"]:
        """Return the messages behind the first ``length``."""
        ...


class Course(msgspec.Struct, frozen=True, gc=False):
    """The course of a history: what its newest turn waits for, and what was missing before."""

    begins: int = 0
    """Position of the newest words of the model; 0 before there are any."""
    calls: int = 0
    answers: int = 0
    is_interrupted: bool = False
    """Whether the user said something behind them."""
    gap: str = ""
    """The missing part of the messages so far; empty without one."""

    def further(self, history: MessageHistory, messages: Sequence["Message"], start: int) -> "Course":
        """With the messages of ``history`` from ``start`` on, which come behind those that were looked at.

        Args:
            history: All messages.
            messages: Its last ones, from the one before ``start`` on.
            start: Number of the messages that were looked at.
        """
        if self.gap:
            return self
        begins, calls, answers, is_interrupted = self.begins, self.calls, self.answers, self.is_interrupted
        first = max(start - 1, 0)
        for position, message in enumerate(messages[start - first :], start):
            if message.role == "assistant" and (answers or is_interrupted):
                if calls > answers and not is_interrupted and _lacks_answer(history.messages, begins, position):
                    return Course(gap=NO_ANSWER)
                begins, calls, answers, is_interrupted = position, 0, 0, False
            if message.tool_calls:
                calls += _distinct([call.id for call in message.tool_calls])
            if message.tool_responses or message.role == "tool":
                answers += _distinct(_answered(message))
                if answers > calls and _lacks_call(history.messages, begins, position):
                    return Course(gap=NO_CALL)
            elif message.role == "user":
                before = messages[max(position - 1, 0) - first]
                went_on = before.role == "assistant" and not before.tool_calls
                if calls > answers and went_on and _lacks_answer(history.messages, begins, position):
                    return Course(gap=NO_ANSWER)
                is_interrupted = True
        return Course(begins, calls, answers, is_interrupted)

    def missing(self, history: MessageHistory) -> str:
        """Return the missing part of a history that ends here; empty where it may be whole."""
        waits = self.calls > self.answers and not self.is_interrupted
        if waits and _lacks_answer(history.messages, self.begins, history.length):
            return NO_ANSWER
        return self.gap


def _distinct(ids: Sequence[str]) -> int:
    """So many calls; one may be told twice, and some APIs give them no ids."""
    return len(ids) if len(ids) == 1 else len({identity for identity in ids if identity}) + ids.count("")


def _lacks_call(whole: Sequence["Message"], begins: int, position: int) -> bool:
    """Whether there are more answers in a turn than calls that they may be to; late ones are to an earlier call."""
    known = {call.id for message in whole[:position] for call in message.tool_calls}
    call_ids, answers = _ids(whole[begins : position + 1])
    return _count_beside(answers, known) > _count_beside(call_ids, answers)


def _lacks_answer(whole: Sequence["Message"], begins: int, end: int) -> bool:
    """Whether there are more calls in a turn than answers that may be to them, wherever those stand."""
    answered = {answer.id for message in whole for answer in message.tool_responses}
    call_ids, answers = _ids(whole[begins:end])
    return _count_beside(call_ids, answered) > _count_beside(answers, call_ids)


def _ids(turn: Sequence["Message"]) -> tuple[list[str], list[str]]:
    """Return the ids of the calls, and of those that are answered."""
    call_ids = [call.id for message in turn for call in message.tool_calls]
    return call_ids, [identity for message in turn for identity in _answered(message)]


def _answered(message: "Message") -> list[str]:
    """Ids of the calls that it answers; what a tool says answers one, even where it is told as mere text."""
    ids = [answer.id for answer in message.tool_responses]
    return ids or ([""] if message.role == "tool" else [])


def _count_beside(ids: Sequence[str], others: Collection[str]) -> int:
    """So many have no id, or one that is not among ``others``."""
    return _distinct([identity for identity in ids if not identity or identity not in others])
