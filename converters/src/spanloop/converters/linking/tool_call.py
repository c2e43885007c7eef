"""A call whose newest tool responses answer the tool calls of an earlier call continues it.

Twice: first where the messages agree as well, because some servers and mocks number their tool calls from one
again for every reply; then by the id alone, for histories that the harness has edited.
Across traces, an id that is not unique by construction counts only where the call, its arguments and the opening of
the conversation agree as well.
"""

from typing import Final

from spanloop.messages import ToolCall

from .base import UNIQUE, Call, IsUnique, Key, StitchRule, opening, source
from .continuation import Evidence


def _emitted_after(call: Call) -> list[Key]:
    return [(request.id, number) for number in call.span.output_chain for request in call.emitted]


def _answered_after(call: Call) -> list[Key]:
    return [(identity, call.before) for identity in call.answered]


def _emitted_id(call: Call) -> list[Key]:
    return [(request.id,) for request in call.emitted]


def _answered_id(call: Call) -> list[Key]:
    return [(identity,) for identity in call.answered]


def _place(identity: str, call: Call, is_unique: IsUnique) -> str:
    return UNIQUE if is_unique(identity) else source(call.span)


def _emitted_after_across(call: Call, is_unique: IsUnique) -> list[Key]:
    placed = [(request.id, _place(request.id, call, is_unique)) for request in call.emitted]
    return [(identity, place, number) for number in call.span.output_chain for identity, place in placed]


def _answered_after_across(call: Call, is_unique: IsUnique) -> list[Key]:
    return [(identity, _place(identity, call, is_unique), call.before) for identity in call.answered]


def _with_arguments(request: ToolCall, call: Call) -> Key:
    return (request.id, source(call.span), request.name, request.arguments, opening(call.span))


def _emitted_across(call: Call, is_unique: IsUnique) -> list[Key]:
    return [
        (request.id, UNIQUE) if is_unique(request.id) else _with_arguments(request, call) for request in call.emitted
    ]


def _answered_across(call: Call, is_unique: IsUnique) -> list[Key]:
    requests = () if call.newest_assistant is None else call.newest_assistant.tool_calls
    unique: list[Key] = [(identity, UNIQUE) for identity in call.answered if is_unique(identity)]
    return unique + [_with_arguments(request, call) for request in requests if request.id and not is_unique(request.id)]


_NO_OPENING: Final = 0


def _nothing(_: Call) -> list[Key]:
    return []


def _emitted_in_doubt(call: Call, is_unique: IsUnique) -> list[Key]:
    ids = [request.id for request in call.emitted if not is_unique(request.id)]
    openings = (opening(call.span), _NO_OPENING) if ids else ()
    return [(identity, source(call.span), begins) for identity in ids for begins in openings]


def _answered_in_doubt(call: Call, is_unique: IsUnique) -> list[Key]:
    span = call.span
    if call.newest_assistant is not None and call.newest_assistant.tool_calls:
        return []
    begins = opening(span) if span.history.user is not None else _NO_OPENING
    return [(identity, source(span), begins) for identity in call.answered if not is_unique(identity)]


TOOL_CALL_AND_PREFIX: Final = StitchRule(
    Evidence.TOOL_CALL_AND_HISTORY, _emitted_after, _answered_after, _emitted_after_across, _answered_after_across
)
TOOL_CALL: Final = StitchRule(Evidence.TOOL_CALL, _emitted_id, _answered_id, _emitted_across, _answered_across)
UNRECORDED_TOOL_CALL: Final = StitchRule(
    Evidence.UNRECORDED_TOOL_CALL, _nothing, _nothing, _emitted_in_doubt, _answered_in_doubt, needs_only_one=True
)
"""For histories without the tool call that is answered (the server keeps them, or nobody recorded them): joined across
traces where the opening agrees, as far as it is there, and only one call could be meant."""
