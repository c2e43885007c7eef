"""An episode's messages as rows, each message once: what a step's prompt adds, its action and its tool results."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from spanloop.dashboard.view_models.conversation import ChatMessage, ConversationStep, StepRecord, build_conversation


class MessageRow(NamedTuple):
    """One part of a message."""

    step: int
    agent: str
    role: str
    """``system``, ``user``, ``assistant`` or ``tool``."""
    kind: str
    """``text``, ``reasoning``, ``tool_call``, ``tool_call_response``, ``raw`` or ``tool_result``."""
    name: str
    """The tool's name; empty for other parts."""
    content: str
    error_type: str
    """Of a tool result that is an error; ``error`` without a type, empty for other parts."""


SCHEMA: Final = pl.Schema(dict.fromkeys(MessageRow._fields, pl.String) | {"step": pl.Int64})


def message_rows(records: list[StepRecord]) -> Iterator[MessageRow]:
    """Yield the parts of the messages that steps show, in order."""
    for step in build_conversation(records):
        for message in step.new_messages:
            yield from _parts(step, message)
        yield from _parts(step, step.action)
        for result in step.tool_results:
            error = (result.error_type or "error") if result.is_error else ""
            yield MessageRow(step.step, step.agent_name, "tool", "tool_result", result.name, result.content, error)


def _parts(step: ConversationStep, message: ChatMessage) -> Iterator[MessageRow]:
    for part in message.parts:
        yield MessageRow(step.step, step.agent_name, message.role, part.kind, part.name, part.content, "")
