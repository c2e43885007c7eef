"""Report records of a source that are no task."""

from typing import TYPE_CHECKING, Final

import typer

from ..console import err

if TYPE_CHECKING:
    from spanloop.evaluation.tasks import Rejected

_MAX_PRINTED: Final = 10


class RejectedRecords:
    """Prints the first records that are no task and every failure of a reader, and counts all."""

    def __init__(self) -> None:
        self._records = self._failures = 0

    def add(self, rejected: "Rejected") -> None:
        """Print and count one."""
        from spanloop.evaluation.tasks import RejectedReason

        is_failure = rejected.reason is RejectedReason.READER_FAILED
        self._failures += is_failure
        self._records += not is_failure
        if is_failure or self._records <= _MAX_PRINTED:
            err.print(str(rejected), markup=False)

    def report(self, done: str) -> None:
        """Print the counts, if there are any; ``done`` is what was done with the tasks, such as "run"."""
        if self._records:
            err.print(f"{self._records:,} records are no task; the others were {done}")
        if self._failures:
            err.print(f"the source was not read to its end; the tasks before were {done}")

    def exit_if_any(self) -> None:
        """Raise ``typer.Exit(1)`` when there was one."""
        if self._records or self._failures:
            raise typer.Exit(1)
