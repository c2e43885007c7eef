"""What a stitch rule is: keys under which a model call's output and a later call's input meet.

Invariant: rules only name keys. Which call continues which is decided in one place (``sweep``), the same way for
every rule, in the order of time and ids, never in the order of arrival.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..spans import Span

Key = tuple[str | bytes, ...]


@dataclass(frozen=True)
class StitchRule:
    """One way to see that a model call continues another.

    Attributes:
        name: As it is called in documentation.
        produced: Keys that a call's output leaves behind.
        awaited: Keys that a call's input asks for, best first.
        needs_only_one: Whether the rule says nothing where several calls that nobody continues could be meant.
    """

    name: str
    produced: Callable[[Span], Iterable[Key]]
    awaited: Callable[[Span], Iterable[Key]]
    needs_only_one: bool = False


def last_assistant(span: Span) -> int | None:
    """Position of the newest assistant message in the input; None when the call starts a conversation."""
    for position in range(len(span.input) - 1, -1, -1):
        if span.input[position].role == "assistant":
            return position
    return None


def answered_ids(span: Span) -> list[str]:
    """Ids of the tool calls that the input's newest assistant message asked for; of their answers, where no call is.

    OpenLIT leaves the calls of assistant messages out of the history, and Ollama's clients whole messages.
    """
    position = last_assistant(span)
    asked = [call.id for call in span.input[position].tool_calls if call.id] if position is not None else []
    if asked:
        return asked
    newest = span.input[0 if position is None else position + 1 :]
    return [answer.id for message in newest for answer in message.tool_responses if answer.id]
