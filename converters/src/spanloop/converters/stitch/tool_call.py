"""A call whose newest tool responses answer the tool calls of an earlier call continues it.

Twice: first where the messages agree as well, because some servers and mocks number their tool calls from one
again for every reply; then by the id alone, for histories that the harness has edited.
Across traces, an id that is not unique by construction counts only where the call, its arguments and the opening of
the conversation agree as well.
"""

from collections.abc import Iterator
from typing import Final

from ..spans import Span
from .base import UNIQUE, IsUnique, Key, StitchRule, answered_ids, last_assistant, opening, source
from .message_prefix import before


def _emitted(span: Span) -> Iterator[str]:
    for message in span.output:
        for call in message.tool_calls:
            if call.id:
                yield call.id


def _emitted_after(span: Span) -> Iterator[Key]:
    identities = list(_emitted(span))
    for digest in span.output_chain if identities else ():
        for identity in identities:
            yield (identity, digest)


def _answered_after(span: Span) -> Iterator[Key]:
    digest = before(span)
    for identity in answered_ids(span):
        yield (identity, digest)


def _emitted_id(span: Span) -> Iterator[Key]:
    for identity in _emitted(span):
        yield (identity,)


def _answered_id(span: Span) -> Iterator[Key]:
    for identity in answered_ids(span):
        yield (identity,)


def _with_place(keys: Iterator[Key], span: Span, is_unique: IsUnique) -> Iterator[Key]:
    for identity, digest in keys:
        yield (UNIQUE if is_unique(str(identity)) else source(span), identity, digest)


def _emitted_after_across(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    return _with_place(_emitted_after(span), span, is_unique)


def _answered_after_across(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    return _with_place(_answered_after(span), span, is_unique)


def _emitted_across(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    for message in span.output:
        for call in message.tool_calls:
            if call.id and is_unique(call.id):
                yield (UNIQUE, call.id)
            elif call.id:
                yield (source(span), call.id, call.name, call.arguments, opening(span))


def _answered_across(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    for identity in answered_ids(span):
        if is_unique(identity):
            yield (UNIQUE, identity)
    position = last_assistant(span)
    for call in () if position is None else span.input[position].tool_calls:
        if call.id and not is_unique(call.id):
            yield (source(span), call.id, call.name, call.arguments, opening(span))


_NO_OPENING: Final = b""


def _nothing(_: Span) -> Iterator[Key]:
    return iter(())


def _emitted_in_doubt(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    for identity in _emitted(span):
        if not is_unique(identity):
            yield (source(span), identity, opening(span))
            yield (source(span), identity, _NO_OPENING)


def _answered_in_doubt(span: Span, is_unique: IsUnique) -> Iterator[Key]:
    position = last_assistant(span)
    if position is not None and span.input[position].tool_calls:
        return
    begins = opening(span) if any(message.role == "user" for message in span.input) else _NO_OPENING
    for identity in answered_ids(span):
        if not is_unique(identity):
            yield (source(span), identity, begins)


TOOL_CALL_AND_PREFIX: Final = StitchRule(
    "tool_call_and_prefix", _emitted_after, _answered_after, _emitted_after_across, _answered_after_across
)
TOOL_CALL: Final = StitchRule("tool_call", _emitted_id, _answered_id, _emitted_across, _answered_across)
UNRECORDED_TOOL_CALL: Final = StitchRule(
    "unrecorded_tool_call", _nothing, _nothing, _emitted_in_doubt, _answered_in_doubt, needs_only_one=True
)
"""For histories without the tool call that is answered (the server keeps them, or nobody recorded them): joined across
traces where the opening agrees, as far as it is there, and only one call could be meant."""
