"""A transition's conversation, read back from its row."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from spanloop.messages import MalformedMessagesError, Message, MessageLog, chain, parse_json
from spanloop.messages.json_values import as_fields

from ..trainable import TRAINABLE_TEXT
from .chat import ChatMessage, NotChatError, chat, tool_definitions

Row = dict[str, object]
MALFORMED: Final = "malformed_messages"
"""Reason of a row whose stored messages cannot be read."""

_COLUMNS: Final = (
    *("episode_id", "group_id", "step", "state", "action", "tools", "reward", "outcome"),
    *("is_trainable", "untrainable_reason"),
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of ``transitions`` as messages."""

    episode_id: str
    step: int
    messages: tuple[Message, ...]
    """State and action."""
    digests: tuple[bytes, ...]
    """Running digest of ``messages``, parallel to it."""
    tools: str
    reward: float | None

    @property
    def action(self) -> Message:
        """The policy's message."""
        return self.messages[-1]

    @property
    def state_digest(self) -> bytes:
        """The same for the same state with the same tools."""
        before = self.digests[-2] if len(self.digests) > 1 else b""
        return before + self.tools.encode("utf-8", "surrogatepass")


class TurnReader:
    """Reads rows; what one row repeats of another is read once."""

    def __init__(self) -> None:
        self._reader = MessageLog()

    def read(self, row: Row) -> Turn:
        """One row's turn.

        Raises:
            MalformedMessagesError: State or action are no messages.
        """
        state = self._reader.read(str(row["state"]) or "[]")
        action = self._reader.read(f"[{row['action']}]")
        messages = (*state, *action)
        reward = row["reward"]
        return Turn(
            episode_id=str(row["episode_id"]),
            step=int(str(row["step"])),
            messages=messages,
            digests=chain(messages),
            tools=str(row["tools"]),
            reward=float(str(reward)) if reward is not None else None,
        )


def chat_turns(
    rows: pl.DataFrame, refused: Callable[[Row], str], rejected: Counter[str], *, with_reasoning: bool = False
) -> Iterator[tuple[Row, Turn]]:
    """Rows of ``transitions``, each with its turn, that may be trained on and that chat APIs have a form for.

    Steps that are untrainable for their token ids alone are among them.

    Args:
        rows: In the order in which they come out.
        refused: Why a row is not wanted; empty where it is.
        rejected: Reason → rows that were left out; counted up.
        with_reasoning: Whether the form has a place for what the model thought.
    """
    reader = TurnReader()
    for row in rows.select(_COLUMNS).iter_rows(named=True):
        is_text = row["is_trainable"] or row["untrainable_reason"] in TRAINABLE_TEXT
        reason = refused(row) if is_text else str(row["untrainable_reason"])
        try:
            turn = None if reason else _chat_turn(reader, row, with_reasoning=with_reasoning)
        except NotChatError as error:
            reason, turn = str(error), None
        except MalformedMessagesError:
            reason, turn = MALFORMED, None
        if turn is None:
            rejected[reason] += 1
        else:
            yield row, turn


def _chat_turn(reader: TurnReader, row: Row, *, with_reasoning: bool) -> Turn:
    if not as_fields(parse_json(str(row["action"]))).get("parts"):
        raise NotChatError("empty_action")
    turn = reader.read(row)
    chat(turn.messages, with_reasoning=with_reasoning)
    tool_definitions(turn.tools)
    return turn


@dataclass(frozen=True, slots=True)
class ChatConversation:
    """Steps of an episode that carry one another on, in OpenAI's chat form."""

    messages: tuple[ChatMessage, ...]
    tools: tuple[ChatMessage, ...]
    steps: tuple[int | None, ...]
    """For each assistant message in order the step that gave it; None for one that is context."""


def conversations(turns: Sequence[Turn], *, with_reasoning: bool = False) -> list[ChatConversation]:
    """Return the conversations of an episode; each action is a step of exactly one of them.

    A step whose conversation another one carries on is part of that one's. An action that two steps gave in the same
    state is the first one's.

    Args:
        turns: Of one episode, in the order of steps, which ``chat_turns`` gave.
        with_reasoning: As of ``chat_turns``.
    """
    carried_on = {digest for turn in turns for digest in turn.digests[:-1]}
    waiting = {turn.digests[-1]: turn.step for turn in reversed(turns)}
    chats: list[ChatConversation] = []
    for turn in turns:
        if turn.digests[-1] in carried_on or turn.digests[-1] not in waiting:
            continue
        messages = zip(turn.messages, turn.digests, strict=True)
        steps = tuple(waiting.pop(digest, None) for message, digest in messages if message.role == "assistant")
        whole = tuple(chat(turn.messages, with_reasoning=with_reasoning))
        chats.append(ChatConversation(whole, tuple(tool_definitions(turn.tools)), steps))
    return chats
