"""Stitch rules: keys under which a model call's output and a later call's input meet.

Invariant: rules only name keys. Which call continues which is decided in one place (``sweep``), the same way for
every rule, in the order of time and ids, never in the order of arrival. A join across traces needs evidence of
identity: an id that is unique by construction, or the same service, nearness in time and agreeing content.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..spans import Span
from .continuation import Evidence

if TYPE_CHECKING:
    from spanloop.messages import ToolCall

Key = tuple[str | int, ...]
"""Begins with an id or the number of a history; across traces, `UNIQUE` or a source is next."""
IsUnique = Callable[[str], bool]

LONGEST_NS: Final = 30 * 60 * 1_000_000_000
"""Most time between two calls of different traces that are joined without an id that is unique by construction. The
pipeline loads other traces that are so near."""

UNIQUE: Final = ""
"""Second element of a key across traces that begins with a unique id; others have `source` there."""


class Call:
    """A model call, with the facts that rules use; each is computed once."""

    __slots__ = (
        "answered",
        "before",
        "conversation",
        "emitted",
        "home",
        "is_traced",
        "key",
        "may_continue",
        "newest_assistant",
        "newest_messages",
        "span",
    )

    def __init__(self, span: Span, home: str, conversation: str = "") -> None:
        self.span = span
        self.key = span.key
        self.home = home
        self.conversation = conversation
        """The unique conversation id of its home; empty without one."""
        self.is_traced = home.startswith("t:")
        """Whether its home is its trace: the app named no episode, so it may be joined with other traces."""
        history = span.history
        spoken = 0 if history.last_assistant is None else history.last_assistant + 1
        self.newest_assistant = history.first(spoken).message
        """The newest assistant message in the input; None when the call starts a conversation."""
        self.newest_messages = history.since(spoken)
        """The messages behind it."""
        self.before = span.history.assistant_number
        """Number of the history up to the newest assistant message of the input; 0 when there is none."""
        self.answered = self._answered_ids()
        """Ids of the tool calls that the newest assistant message asked for; of their answers, where no call is.

        OpenLIT leaves the calls of assistant messages out of the history, and Ollama's clients whole messages.
        """
        self.may_continue = self.newest_assistant is not None or any(
            message.tool_responses for message in self.newest_messages
        )
        """Whether anything in its input may have come of an earlier call."""
        self.emitted: list[ToolCall] = [
            request for message in span.output for request in message.tool_calls if request.id
        ]
        """Tool calls with an id in the output."""

    def _answered_ids(self) -> list[str]:
        newest = self.newest_assistant
        ids = [call.id for call in newest.tool_calls if call.id] if newest is not None else []
        return ids or [answer.id for message in self.newest_messages for answer in message.tool_responses if answer.id]


KeysOf = Callable[[Call], Iterable[Key]]
AcrossTraces = Callable[[Call, IsUnique], Iterable[Key]]


@dataclass(frozen=True)
class StitchRule:
    """One way to see that a model call continues another.

    Attributes:
        evidence: What a match shows.
        produced: Keys that a call's output leaves behind, for calls of its own trace or named episode.
        awaited: Keys that a call's input asks for there, best first.
        produced_across: Keys for calls of other traces. Keys with ``UNIQUE`` hold at any distance in time, others
            for half an hour.
        awaited_across: Keys that a call's input asks for in other traces, best first.
        needs_only_one: Whether the rule says nothing where several calls that nobody continues could be meant.
    """

    evidence: Evidence
    produced: KeysOf
    awaited: KeysOf
    produced_across: AcrossTraces
    awaited_across: AcrossTraces
    needs_only_one: bool = False


def source(span: Span) -> str:
    """Return what recorded the call: its service and instrumentation scope. Loops of one process have one."""
    return f"service {span.service_name}, scope {span.scope}"


def opening(span: Span) -> int:
    """Number of the history up to its first user message; of all of it where there is none."""
    return span.history.user_number or span.history.number
