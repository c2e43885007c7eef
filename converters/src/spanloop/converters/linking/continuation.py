"""The relation "a later model call continues an earlier one", and its evidence.

Invariant: no other module compares the messages of two calls. The linking rules find which call continues which and
give the ``Evidence``; ``continues`` says what the two histories have in common. Steps, tool results, token rows,
choices, trainability and attribution ask it.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from spanloop.messages import Message

from ..spans import Span


class Evidence(StrEnum):
    """Why a call is taken to continue another one, the strongest evidence first."""

    TOOL_CALL_AND_HISTORY = "tool_call_and_history"
    """It answers tool calls by their ids, and its history is the other call's input and output."""
    TOOL_CALL = "tool_call"
    """It answers tool calls by their ids; its history was edited."""
    HISTORY = "history"
    """Its history is the other call's input and output."""
    UNRECORDED_TOOL_CALL = "unrecorded_tool_call"
    """It answers tool calls by their ids; its history lacks the calls."""
    UNRECORDED_OUTPUT = "unrecorded_output"
    """Its history is the other call's input; the output, or a part of it, was not recorded."""
    INSERTED_RESULT = "inserted_result"
    """A tool's result was written into a message of the other call's input."""


class Continuation(msgspec.Struct, frozen=True, gc=False):
    """The part of a later call's input that repeats an earlier call."""

    repeats_input: bool
    """Whether it begins with the earlier call's whole input and has more."""
    is_same_input: bool
    """Whether it equals the earlier call's input."""
    new_messages: tuple[Message, ...]
    """Its messages behind as many as the earlier call was sent."""
    choice: int | None
    """Which choice of the earlier call's output comes next in it, by content; None where none does."""


def continues(call: Span, after: Span) -> Continuation:
    """Compare the input of ``after`` with the input and output of ``call``."""
    before = call.history
    new_messages = tuple(after.history.since(before.length))
    node = after.history.first(before.length)
    is_prefix = 0 < before.length == node.length and node.number == before.number
    if not is_prefix or not new_messages:
        return Continuation(False, is_prefix, new_messages, None)
    content = new_messages[0].content
    for place, message in enumerate(call.output):
        if message.content == content:
            return Continuation(True, False, new_messages, place)
    return Continuation(True, False, new_messages, None)


def is_recorded(call: Span) -> bool:
    """Whether a tracer wrote down anything that the model answered; an empty answer object is no answer."""
    if call.output and (call.output[0].text or call.output[0].tool_calls):
        return True
    return any(message.text or message.tool_calls or _NON_TEXT_PART.search(message.json) for message in call.output)


_NON_TEXT_PART: Final = re.compile(r'"type":\s*"(?!text")')
