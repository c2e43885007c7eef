"""A call whose newest tool responses answer the tool calls of an earlier call continues it.

Twice: first where the messages agree as well, because some servers and mocks number their tool calls from one
again for every reply; then by the id alone, for histories that the harness has edited.
"""

from collections.abc import Iterator
from typing import Final

from ..spans import Span
from .base import Key, StitchRule, answered_ids
from .message_prefix import after, before


def _emitted(span: Span) -> Iterator[str]:
    for message in span.output:
        for call in message.tool_calls:
            if call.id:
                yield call.id


def _emitted_after(span: Span) -> Iterator[Key]:
    identities = list(_emitted(span))
    for digest in after(span) if identities else ():
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


TOOL_CALL_AND_PREFIX: Final = StitchRule("tool_call_and_prefix", _emitted_after, _answered_after)
TOOL_CALL: Final = StitchRule("tool_call", _emitted_id, _answered_id)
