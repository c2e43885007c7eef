"""Run a role in this process: read its settings, configure its log, report the error that ends it."""

from collections.abc import Callable, Sequence

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings.sources import AnyRole, Process, read_process

from .logs import configure_logging, report_failure


def run_role(role: type[AnyRole], serve: Callable[[Process[AnyRole]], object], arguments: Sequence[str] | None) -> int:
    """Run a role until it ends; return the exit code: that of the error that ended it, else 0.

    Args:
        role: Its settings' class.
        serve: Runs it with the settings that were read.
        arguments: The command line; None is that of this process.
    """
    try:
        process = read_process(role, arguments)
        configure_logging(role.role, process.data_dir, requested=process.log_format)
        serve(process)
    except SpanloopError as error:
        return report_failure(error)
    return 0
