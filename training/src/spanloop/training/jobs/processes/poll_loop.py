"""The loop of the scheduler and of a job runner: act, wait, and outlive a control database that is away."""

import logging
from collections.abc import Callable
from typing import TypeVar

from spanloop.foundation.errors import DataDirectoryError

from .stop_signal import StopRequest

log = logging.getLogger("spanloop.training.run.scheduler")


T = TypeVar("T")


def wait_for_database(make: Callable[[], T], stop: StopRequest, *, poll_s: float) -> T | None:
    """Return what ``make`` makes; while the database is away try again. None: ``stop`` was set meanwhile.

    Raises:
        DataDirectoryError: The database cannot be used, and waiting does not help.
    """
    is_logged = False
    while not stop.wait(0):
        try:
            return make()
        except DataDirectoryError as error:
            if not error.is_transient:
                raise
            if not is_logged:
                log.warning("waiting for the control database: %s", error)
            is_logged = True
        stop.wait(poll_s)
    return None


def poll(tick: Callable[[], None], stop: StopRequest, *, poll_s: float) -> None:
    """Call ``tick`` every ``poll_s`` seconds until ``stop`` is set; an error of the database is logged once."""
    last_error = ""
    while not stop.wait(0):
        try:
            tick()
            last_error = ""
        except DataDirectoryError as error:
            # Tolerance boundary: a full disk or a restarting database must not end the running jobs.
            if str(error) != last_error:
                log.error("control database: %s", error)  # noqa: TRY400 - the operator needs no traceback
            last_error = str(error)
        stop.wait(poll_s)
