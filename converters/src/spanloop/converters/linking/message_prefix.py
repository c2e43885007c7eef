"""A call whose input, up to its newest assistant message, is an earlier call's input and output, continues it.

Calls that only share how they begin (system prompt and first user message) share no key: it takes an answer of the
model to continue. Held within one service, because two services may well say the same. The numbers of histories leave
ids out, so across traces the ids of the answer's tool calls must agree as well, where both calls have them.
"""

from typing import Final

from .base import Call, IsUnique, Key, StitchRule, source
from .continuation import Evidence


def _produced(call: Call) -> list[Key]:
    return [(number, call.span.service_name) for number in call.span.output_chain]


def _awaited(call: Call) -> list[Key]:
    return [(call.before, call.span.service_name)] if call.before else []


_ANY_ID: Final = "*"
_NO_ID: Final = ""


def _produced_across(call: Call, _: IsUnique) -> list[Key]:
    ids = [request.id for request in call.emitted] or [_NO_ID]
    place = source(call.span)
    return [(number, place, identifier) for number in call.span.output_chain for identifier in (_ANY_ID, *ids)]


def _awaited_across(call: Call, _: IsUnique) -> list[Key]:
    if call.newest_assistant is None:
        return []
    ids = [request.id for request in call.newest_assistant.tool_calls if request.id]
    place = source(call.span)
    return [(call.before, place, identifier) for identifier in ((*ids, _NO_ID) if ids else (_ANY_ID,))]


MESSAGE_PREFIX: Final = StitchRule(Evidence.HISTORY, _produced, _awaited, _produced_across, _awaited_across)
