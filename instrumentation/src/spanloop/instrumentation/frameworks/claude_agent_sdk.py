"""Claude Agent SDK: the `claude` program that it starts makes the model calls, and traces itself when it is told to.

The program gets the variables that switch this on, and the collector's address. Its spans are in the trace of one span
of an agent's run for each session, from which they take the task.

Invariant: a variable that the user or the app has set keeps its value, and the app's own environment stays as it is.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, Final
from urllib.parse import quote
from weakref import WeakKeyDictionary

from spanloop.instrumentation.content_capture import captures_content
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.sending.endpoint import configured_key_headers, discover_collector
from spanloop.instrumentation.setup import default_service_name, names_service_itself

from .spans import RunSpan, start_agent_span
from .traced import wrap_functions

_TRACING: Final = {
    "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
    "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",  # spans, beside log events
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_LOGS_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
}
_CONTENT: Final = {
    "OTEL_LOG_USER_PROMPTS": "1",
    "OTEL_LOG_TOOL_DETAILS": "1",
    "OTEL_LOG_TOOL_CONTENT": "1",
    "OTEL_LOG_RAW_API_BODIES": "1",
    "CLAUDE_CODE_OTEL_CONTENT_MAX_LENGTH": "16777216",  # else requests are cut off after 60 kB
}

_EXPORTERS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_METRICS_EXPORTER")

_sessions: Final[WeakKeyDictionary[object, RunSpan]] = WeakKeyDictionary()
"""Transport → the span of its session."""


def trace_sessions(module: ModuleType) -> None:
    """Wrap ``claude_agent_sdk._internal.transport.subprocess_cli``."""
    wrap_functions(module, {"SubprocessCLITransport.connect": _connect, "SubprocessCLITransport.close": _close})


async def _connect(
    connect: Callable[..., Awaitable[Any]], transport: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    if transport in _sessions:
        return await connect(*args, **named)
    _let_it_trace(transport)
    span = _sessions[transport] = start_agent_span("")
    try:
        with span.current():  # the SDK hands the current span over
            return await connect(*args, **named)
    except Exception as error:
        span.fail(error)
        _end(transport)
        raise


async def _close(
    close: Callable[..., Awaitable[Any]], transport: Any, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    try:
        return await close(*args, **named)
    finally:
        _end(transport)


@guard("a session's end was not recorded", None)
def _end(transport: object) -> None:
    if span := _sessions.pop(transport, None):
        span.end()


@guard("the claude program does not trace itself", None)
def _let_it_trace(transport: Any) -> None:
    options = transport._options  # noqa: SLF001
    given = {name: value for name, value in session_variables().items() if name not in os.environ}
    given |= {name: _without_console(os.environ[name]) for name in _EXPORTERS if name in os.environ}
    transport._options = replace(options, env=given | options.env)  # noqa: SLF001


def _without_console(exporters: str) -> str:
    """Return the exporters without the one that writes to standard output, which the SDK reads."""
    return ",".join(name for name in exporters.split(",") if name.strip() != "console") or "none"


def session_variables() -> dict[str, str]:
    """Return the variables with which the program sends its spans, and its requests as log events."""
    variables = dict(_TRACING)
    variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = discover_collector()
    if "OTEL_EXPORTER_OTLP_ENDPOINT" not in os.environ and (headers := configured_key_headers()):
        variables["OTEL_EXPORTER_OTLP_HEADERS"] = ",".join(f"{name}={quote(headers[name])}" for name in headers)
    if captures_content():
        variables |= _CONTENT
    if not names_service_itself(os.environ):
        variables["OTEL_SERVICE_NAME"] = default_service_name()
    return variables
