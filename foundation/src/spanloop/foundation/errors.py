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
    │   └── LateInsertError
    ├── ObjectStorageError      an object is missing or damaged, or its storage is unreachable
    ├── ConversionError         spans that cannot become transitions
    └── JobError                a training job that cannot run or failed

An error says what happened, what was got and expected, and the next step. The command line prints ``str(error)``
and exits with ``exit_code``.
"""

from spanloop.semconv.errors import ConfigurationError, SpanloopError

__all__ = [
    "AlreadyRunningError",
    "ConfigurationError",
    "ConversionError",
    "DataDirectoryError",
    "JobError",
    "LateInsertError",
    "NotRunningError",
    "ObjectStorageError",
    "PortInUseError",
    "ServiceError",
    "SpanloopError",
    "StoreError",
]


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


class LateInsertError(StoreError):
    """ClickHouse refused a block that came after the time until which its sender might write; nothing is stored."""


class ObjectStorageError(SpanloopError):
    """An object is missing, incomplete or damaged, or the storage is unreachable."""

    exit_code = 5


class ConversionError(SpanloopError):
    """Spans that cannot become transitions."""


class JobError(SpanloopError):
    """A training job that cannot run, or failed."""
