"""A call whose input, up to its newest assistant message, is an earlier call's input and output, continues it.

Calls that only share how they begin (system prompt and first user message) share no key: it takes an answer of the
model to continue. Held within one service, because two services may well say the same.
"""

from collections.abc import Iterator
from typing import Final

from ..messages import extend
from ..spans import Span
from .base import Key, StitchRule, last_assistant


def after(span: Span) -> Iterator[bytes]:
    """The running digest after the call's input and each of its choices."""
    running = span.input_chain[-1] if span.input_chain else b""
    for message in span.output:
        yield extend(running, message)


def before(span: Span) -> bytes:
    """The running digest at the newest assistant message of the input; empty when there is none."""
    position = last_assistant(span)
    return b"" if position is None else span.input_chain[position]


def _produced(span: Span) -> Iterator[Key]:
    for digest in after(span):
        yield (span.service_name, digest)


def _awaited(span: Span) -> Iterator[Key]:
    digest = before(span)
    if digest:
        yield (span.service_name, digest)


MESSAGE_PREFIX: Final = StitchRule("message_prefix", _produced, _awaited)
