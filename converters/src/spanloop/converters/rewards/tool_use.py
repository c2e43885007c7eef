"""Components of a reward that say how well an attempt used its tools, each from 0 to 1.

- tool_success: the share of answered calls that the tool answered without an error.
- tool_timing: the share of the reference calls that were made when they were needed: each after the reference calls
  before it, and none of them too early.
- recovery: what followed failed calls. Another call that works is worth 1, the same call that works now 0.5, another
  one that fails too 0.25; the same call that fails again, and none at all, 0.

A component is None where it does not apply.
"""

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, Final, NamedTuple

from spanloop.messages import parse_json_or_none

from .attempt import Call

FALLBACK_WORKS: Final = 1.0
REPEAT_WORKS: Final = 0.5
FALLBACK_FAILS: Final = 0.25


class ReferenceCall(NamedTuple):
    """A call that a task asks for, in its place among others."""

    name: str
    arguments: Mapping[str, Any]
    """Those that the call must have; it may have others."""


def tool_success(calls: Sequence[Call]) -> float | None:
    """Return the share of answered calls without an error."""
    answered = [call.result for call in calls if call.result is not None]
    return None if not answered else sum(not result.is_error for result in answered) / len(answered)


def tool_timing(calls: Sequence[Call], reference: Sequence[ReferenceCall] | None) -> float | None:
    """Return the share of the reference calls that were made when they were needed.

    A call is needed once the reference calls before it were made. One that was made earlier as well counts as half: it
    was made too early, and again in time.
    """
    if not reference:
        return None
    made = [_arguments(call) for call in calls]
    after, values = -1, list[float]()
    for needed in reference:
        matches = [index for index, call in enumerate(made) if _matches(call, needed)]
        in_time = next((index for index in matches if index > after), None)
        if in_time is None:
            continue
        is_early = any(index <= after for index in matches) and not _is_repeated(reference, needed)
        values.append(0.5 if is_early else 1.0)
        after = in_time
    return fsum(values) / len(reference)


def recovery(calls: Sequence[Call]) -> float | None:
    """Return how well the attempt went on after failed calls."""
    values = [
        _recovered(call, calls[index + 1] if index + 1 < len(calls) else None)
        for index, call in enumerate(calls)
        if call.result is not None and call.result.is_error
    ]
    return fsum(values) / len(values) if values else None


def _recovered(failed: Call, following: Call | None) -> float:
    if following is None or following.result is None:
        return 0.0
    works = not following.result.is_error
    if _arguments(failed) == _arguments(following):
        return REPEAT_WORKS if works else 0.0
    return FALLBACK_WORKS if works else FALLBACK_FAILS


def _arguments(call: Call) -> ReferenceCall:
    values = parse_json_or_none(call.call.arguments)
    return ReferenceCall(call.call.name, values if isinstance(values, dict) else {})


def _matches(call: ReferenceCall, needed: ReferenceCall) -> bool:
    missing = object()
    return call.name == needed.name and all(
        call.arguments.get(name, missing) == value for name, value in needed.arguments.items()
    )


def _is_repeated(reference: Sequence[ReferenceCall], needed: ReferenceCall) -> bool:
    return sum(_matches(other, needed) for other in reference) > 1
