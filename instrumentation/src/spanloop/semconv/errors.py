"""The error tree of spanloop.

::

    SpanloopError
    ├── ConfigurationError      a setting, a path or a missing extra
    ├── ServiceError            a process of ours cannot start, or ended
    │   ├── PortInUseError
    │   ├── AlreadyRunningError
    │   └── NotRunningError
    ├── DataDirectoryError      another version, not writable, disk full
    ├── StoreError              ClickHouse rejected a statement or is unreachable
    ├── ConversionError         spans that cannot become transitions
    └── JobError                a training job that cannot run or failed

An error says what happened, what was got and expected, and the next step. The command line prints ``str(error)``
and exits with ``exit_code``.
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


class ServiceError(SpanloopError):
    """A process of ours cannot start, or ended."""

    exit_code = 3


class PortInUseError(ServiceError):
    """Another process listens on the port."""


class AlreadyRunningError(ServiceError):
    """A second ``spanloop up`` on one data directory."""


class NotRunningError(ServiceError):
    """The command needs a service that is not running."""

    is_transient = True


class DataDirectoryError(SpanloopError):
    """The data directory is of another version, not writable or out of space."""

    exit_code = 4


class StoreError(SpanloopError):
    """ClickHouse rejected a statement or is unreachable."""

    exit_code = 5


class ConversionError(SpanloopError):
    """Spans that cannot become transitions."""


class JobError(SpanloopError):
    """A training job that cannot run, or failed."""
