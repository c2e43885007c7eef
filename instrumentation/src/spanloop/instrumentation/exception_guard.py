"""Contain our exceptions at every entry from user code, and keep OpenTelemetry's log records out of the app's logs.

Invariant: an error of ours (or of OpenTelemetry's) becomes one line on stderr, and with
``OTEL_LOG_LEVEL`` set a log record; it is never raised into the app.
"""

import logging
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from spanloop.instrumentation.notice import has_printed_choice, print_once

P = ParamSpec("P")
R = TypeVar("R")

LOG_LEVEL_ENV: Final = "OTEL_LOG_LEVEL"
_QUIETED: Final = ("opentelemetry", "spanloop.instrumentation")
_BATCH_LOGGER: Final = "opentelemetry.sdk._shared_internal"  # its warnings mean lost spans: "Queue full, dropping"
_LOADER: Final = "opentelemetry.instrumentation.auto_instrumentation._load"

_logger = logging.getLogger(__name__)


def report(what: str, error: BaseException) -> None:
    """Print that ``what`` failed because of ``error``; the traceback goes to the log."""
    _logger.debug("%s", what, exc_info=error)
    print_once(
        f"{what}: {type(error).__name__}: {error} (the app goes on without it; set {LOG_LEVEL_ENV}=debug for more)"
    )


@contextmanager
def guarded(what: str) -> Generator[None]:
    """Report an exception of the block instead of raising it.

    Only our own code may run in the block: an exception of the user's must propagate.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  the tolerance boundary around a user's process
        report(what, error)


def guard(what: str, fallback: R) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of ours: report its exceptions and return ``fallback`` instead."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded_function(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001  the tolerance boundary around a user's process
                report(what, error)
                return fallback

        return guarded_function

    return decorate


class _OneLineHandler(logging.Handler):
    """Prints the first record that means lost data as the process's one line."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _LOADER and record.exc_info is None and has_printed_choice():
            return  # an instrumentor that does not fit, which the line about the choice names
        if record.levelno >= logging.ERROR or record.name == _BATCH_LOGGER:
            error = record.exc_info[1] if record.exc_info else None
            print_once(record.getMessage() + (f": {type(error).__name__}: {error}" if error else ""))


def quiet_logs() -> None:
    """Keep OpenTelemetry's log records out of the app's handlers, unless ``OTEL_LOG_LEVEL`` asks for them."""
    level = os.environ.get(LOG_LEVEL_ENV, "").strip().upper()
    if level:
        known = logging.getLevelNamesMapping()
        for name in _QUIETED:
            logging.getLogger(name).setLevel(known.get(level, logging.INFO))
        return
    handler = _OneLineHandler(logging.WARNING)
    for name in _QUIETED:
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.propagate = False
