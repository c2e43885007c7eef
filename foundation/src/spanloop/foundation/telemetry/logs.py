"""Logs of every role: text, or one JSON object a line.

Invariant: all lines of a role have the format that its user chose, the error that ends it included. A line that is
logged while a request is handled has the trace id of its ``traceparent``; a line of a job has the ids of the job.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO

from starlette.types import ASGIApp, Receive, Scope, Send

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.settings import load_configuration
from spanloop.semconv.environment import LOG_FORMAT_ENV

TEXT_LAYOUT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_traceparent: ContextVar[str] = ContextVar("traceparent", default="")
_process_fields: Final = dict[str, str | int]()


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


def configure_logging(
    role: str,
    data_dir: Path,
    *,
    requested: str | None = None,
    config: Path | None = None,
    stream: TextIO | None = None,
    text_layout: str = TEXT_LAYOUT,
) -> None:
    """Configure the log of this process.

    Args:
        role: Its name, in every JSON line.
        data_dir: Where ``spanloop.toml`` is looked for last.
        requested: The option ``--log-format``; None takes ``$SPANLOOP_LOG_FORMAT``, else ``[logging] format``.
        config: The configuration file; None looks for one.
        stream: Where lines are written; None is stderr.
        text_layout: Layout of text lines.

    Raises:
        ConfigurationError: The format is unknown, or the configuration cannot be read.
    """
    handler = logging.StreamHandler(stream)
    _process_fields.clear()
    _process_fields["role"] = role
    if _log_format(requested, data_dir, config) is LogFormat.JSON:
        handler.setFormatter(_JsonFormatter())
        sys.excepthook = _log_uncaught
    else:
        handler.setFormatter(logging.Formatter(text_layout))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def add_log_fields(**fields: str | int) -> None:
    """Add fields to every further JSON line of this process, such as the id of the job that it runs."""
    _process_fields.update(fields)


def report_failure(error: SpanloopError) -> int:
    """Write the error that ends this process, as a line of the JSON log or as text; return the exit code."""
    if any(isinstance(handler.formatter, _JsonFormatter) for handler in logging.getLogger().handlers):
        logging.getLogger("spanloop").critical("%s", error)
    else:
        sys.stderr.write(f"{error}\n")
    return error.exit_code


def traced(app: ASGIApp) -> ASGIApp:
    """Give lines that are logged while a request is handled the trace id of the request."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
            _traceparent.set(header.decode("latin-1"))
        await app(scope, receive, send)

    return handle


def set_traceparent(traceparent: str) -> None:
    """Give further lines of this task the trace id of a call that does not come by HTTP."""
    _traceparent.set(traceparent)


class _JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_process_fields,
            **_trace_fields(_traceparent.get()),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _trace_fields(traceparent: str) -> Mapping[str, str]:
    match = _TRACEPARENT.fullmatch(traceparent.strip())
    return {"trace_id": match[1], "span_id": match[2]} if match else {}


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    logging.getLogger("spanloop").critical("the process ends by an error", exc_info=(kind, error, traceback))


def _log_format(requested: str | None, data_dir: Path, config: Path | None) -> LogFormat:
    origin, text = "--log-format", requested
    if not text:
        origin, text = LOG_FORMAT_ENV, os.environ.get(LOG_FORMAT_ENV)
    if not text:
        return LogFormat(load_configuration(data_dir, config).logging.format)
    if text not in list(LogFormat):
        raise ConfigurationError(f"{origin} is {text!r}, expected text or json.", next_step=f"Set {origin} to json.")
    return LogFormat(text)
