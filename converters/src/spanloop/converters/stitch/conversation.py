"""Traces that carry one conversation id are one episode, unless the conversation starts over.

Invariant: episodes that the app named itself are left alone. A trace whose first call has exactly the input with
which the conversation began is another attempt under the same id (a thread id that a program reuses): it begins
the next episode.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..spans import Span, SpanKind
from .sweep import SpanKey


def conversations(
    spans: Sequence[Span], home: Mapping[SpanKey, str], *, session_is_episode: bool
) -> Iterator[tuple[str, str]]:
    """Pairs of homes that belong to one episode.

    Args:
        spans: In the order of start and id.
        home: Span key → home.
        session_is_episode: Whether ``session.id`` counts as a conversation id.
    """
    if not any(span.conversation_id or (session_is_episode and span.session_id) for span in spans):
        return
    opening: dict[str, bytes] = {}
    members: dict[tuple[str, str, str], dict[str, None]] = defaultdict(dict)
    for span in spans:
        own = home[span.key]
        if not own.startswith("t:"):
            continue
        if span.kind is SpanKind.LLM and own not in opening:
            opening[own] = span.input_chain[-1] if span.input_chain else b""
        if span.conversation_id:
            members["conversation", span.service_name, span.conversation_id][own] = None
        if session_is_episode and span.session_id:
            members["session", span.service_name, span.session_id][own] = None
    for found in members.values():
        first, began = "", b""
        for own in found:
            start = opening.get(own, b"")
            if not first or (began and start == began):
                first, began = own, start
            else:
                began = began or start
                yield first, own
