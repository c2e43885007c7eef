"""Faults of the environment: time, load, network, rights, or somebody who stopped the program.

Nobody who calls can help them, and the same call may work at another time. A status code decides first, in any
language; the words of the error decide where it names none, or only that access is denied (a service that limits the
rate may answer 403).
"""

from functools import lru_cache
from typing import Final

from ..errors.failure_patterns import failure_pattern, failure_patterns
from ..errors.status_codes import class_of_status
from .base import ErrorClass

_STATUS_DECIDES: Final = frozenset({ErrorClass.TIMEOUT, ErrorClass.RATE_LIMIT, ErrorClass.SERVER_ERROR})
_ENVIRONMENT: Final = (*failure_patterns("environment"), *failure_patterns("hint"))
"""In order of precedence."""


@lru_cache(maxsize=256)
def environment_fault(text: str, status: str = "") -> ErrorClass | None:
    """The class of a fault of the environment.

    Args:
        text: All that is said of the error.
        status: The code of ``status_codes`` that came with it; empty without one.
    """
    shown = class_of_status(status)
    if shown in _STATUS_DECIDES:
        return ErrorClass(shown)
    if text:
        fault = next((ErrorClass(pattern.error_class) for pattern in _ENVIRONMENT if pattern.search(text)), None)
        if fault is not None:
            return fault
    return ErrorClass.PERMISSION_DENIED if shown == ErrorClass.PERMISSION_DENIED else None


_STOPPED: Final = failure_pattern("stopped")
_OF_TIME: Final = failure_pattern("of_time")
"""An error of time: a call that it cancels was stopped by nobody."""


def was_stopped(text: str) -> bool:
    """Whether an error's text tells of somebody who stopped the program, or went away."""
    return _STOPPED.search(text) is not None and _OF_TIME.search(text) is None
