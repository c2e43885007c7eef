"""Faults of the surroundings, told by the text of an error: time, load, network, rights, or somebody who stopped it.

Nobody who calls can help them, and the same call may work at another time.
"""

from typing import Final

from ..failure_patterns import failure_pattern, failure_patterns
from .base import ErrorClass

_ENVIRONMENT: Final = failure_patterns("environment")
"""In order of precedence."""


def environment_fault(text: str) -> ErrorClass | None:
    """The class of a fault of the surroundings that an error's text tells of."""
    return next((ErrorClass(pattern.name) for pattern in _ENVIRONMENT if pattern.search(text)), None)


_STOPPED: Final = failure_pattern("stopped")
_OF_TIME: Final = failure_pattern("of_time")
"""What is cancelled because of it was stopped by nobody."""


def was_stopped(text: str) -> bool:
    """Whether an error's text tells of somebody who stopped the program, or went away."""
    return _STOPPED.search(text) is not None and _OF_TIME.search(text) is None
