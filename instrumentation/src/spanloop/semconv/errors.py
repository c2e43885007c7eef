"""The error tree of spanloop.

::

    SpanloopError
    ├── ConfigurationError      a setting, a path or a missing extra
    ├── ServiceError            a process of ours cannot start, or went away
    │   ├── PortInUseError
    │   ├── AlreadyRunningError
    │   └── NotRunningError
    ├── DataDirectoryError      another version, not writable, disk full
    ├── StoreError              ClickHouse refused or is out of reach
    ├── ConversionError         spans that cannot become transitions
    └── JobError                a training job that cannot run or failed

An error says what happened, what was got and expected, and the next step. Text for a person is ``str(error)``;
the command line prints exactly that and exits with ``exit_code``.
"""


class SpanloopError(Exception):
    """Base of every error that spanloop raises on purpose.

    Args:
        what: One sentence that says what went wrong and where (ids, paths, ports).
        next_step: One sentence, or a command, that mends it; empty when there is none.
    """

    exit_code: int = 1

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what}\n  next: {self.next_step}" if self.next_step else self.what


class ConfigurationError(SpanloopError):
    """A setting, a path or an extra is missing or wrong."""

    exit_code = 2


class ServiceError(SpanloopError):
    """A process of ours could not start, or went away."""

    exit_code = 3


class PortInUseError(ServiceError):
    """Another process listens where we wanted to."""


class AlreadyRunningError(ServiceError):
    """A second ``spanloop up`` on one data directory."""


class NotRunningError(ServiceError):
    """The command needs a running service and found none."""


class DataDirectoryError(SpanloopError):
    """The data directory is of another version, not writable or out of space."""

    exit_code = 4


class StoreError(SpanloopError):
    """ClickHouse refused a statement or is out of reach."""

    exit_code = 5


class ConversionError(SpanloopError):
    """Spans that cannot become transitions."""


class JobError(SpanloopError):
    """A training job that cannot run, or failed."""
