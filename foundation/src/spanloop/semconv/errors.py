"""The base of spanloop's errors, and the one that a user's app can meet.

All others are in ``spanloop.foundation.errors``. An error says what happened, what was got and expected, and the next
step. The command line prints ``str(error)`` and exits with ``exit_code``.
"""


class SpanloopError(Exception):
    """Base of every error that spanloop raises on purpose.

    Args:
        what: One sentence that says what went wrong and where (ids, paths, ports).
        next_step: One sentence, or a command, that fixes it; empty when there is none.
        is_transient: Whether it passes without a change by the user: a service is away, or a disk is full. None is
            what its class says.
    """

    exit_code: int = 1
    is_transient: bool = False

    def __init__(self, what: str, *, next_step: str = "", is_transient: bool | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step
        if is_transient is not None:
            self.is_transient = is_transient

    def __str__(self) -> str:
        return f"{self.what}\n  next: {self.next_step}" if self.next_step else self.what


class ConfigurationError(SpanloopError):
    """A setting, a path or an extra is missing or wrong."""

    exit_code = 2
