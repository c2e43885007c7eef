"""A call whose input, up to its newest assistant message, is an earlier call's input and output, continues it.

Calls that only share how they begin (system prompt and first user message) share no key: it takes an answer of the
model to continue. Held within one service, because two services may well say the same. Digests leave ids out, so
across traces the ids of the answer's tool calls must agree as well, where both calls have them.
"""

from collections.abc import Iterator
from typing import Final

from ..spans import Span
from .base import IsUnique, Key, StitchRule, last_assistant, source


def before(span: Span) -> bytes:
    """The running digest at the newest assistant message of the input; empty when there is none."""
    position = last_assistant(span)
    return b"" if position is None else span.input_chain[position]


def _produced(span: Span) -> Iterator[Key]:
    for digest in span.output_chain:
        yield (span.service_name, digest)


def _awaited(span: Span) -> Iterator[Key]:
    digest = before(span)
    if digest:
        yield (span.service_name, digest)


_ANY_ID: Final = "*"
_NO_ID: Final = ""


def _produced_across(span: Span, _: IsUnique) -> Iterator[Key]:
    ids = [call.id for message in span.output for call in message.tool_calls if call.id] or [_NO_ID]
    for digest in span.output_chain:
        for identifier in (_ANY_ID, *ids):
            yield (source(span), digest, identifier)


def _awaited_across(span: Span, _: IsUnique) -> Iterator[Key]:
    position = last_assistant(span)
    if position is None:
        return
    ids = [call.id for call in span.input[position].tool_calls if call.id]
    for identifier in (*ids, _NO_ID) if ids else (_ANY_ID,):
        yield (source(span), span.input_chain[position], identifier)


MESSAGE_PREFIX: Final = StitchRule("message_prefix", _produced, _awaited, _produced_across, _awaited_across)
