"""Tell failures that pass from failures that recur: a service that is away, or a full disk, against all others.

Invariant: a failure is transient only if the error says so itself, or one that it was raised from. Everything else
recurs, so that a job with a bad spec is not started again and again.
"""

import errno
import os
from collections.abc import Iterator
from typing import Final

from spanloop.foundation.errors import SpanloopError

EX_TEMPFAIL: Final = os.EX_TEMPFAIL
"""Exit status of a job's process that failed for a cause that passes (sysexits.h)."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_transient(error: BaseException) -> bool:
    """Whether it, or an error that it was raised from, passes: the same attempt may succeed later."""
    return any(_passes(cause) for cause in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _passes(error: BaseException) -> bool:
    if isinstance(error, SpanloopError):
        return error.is_transient
    return isinstance(error, OSError) and error.errno in _FULL
