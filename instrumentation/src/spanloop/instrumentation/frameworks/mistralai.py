"""The Mistral SDK (from 3) traces itself where ``MISTRAL_SDK_TELEMETRY`` or its client asks for it.

It calls only an answer with ``"object": "error"`` an error; every other one that the API refuses is marked here.
"""

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from opentelemetry.trace import Status, StatusCode

from spanloop.instrumentation.content_capture import captures_content
from spanloop.semconv import attributes as names

from .traced import Call, before, wrap_functions

_GLOBAL: Final = "global"
"""The setting for spans through OpenTelemetry's global provider."""


def switch_on(module: ModuleType) -> None:
    """Wrap ``mistralai.extra.observability.telemetry``; it cannot leave out what is said."""
    if captures_content():
        wrap_functions(module, {"_resolve_mistral_telemetry_env": _setting})


def _setting(
    resolve: Callable[..., str | None], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> str | None:
    return resolve(*args, **named) or (None if os.environ.get("MISTRAL_SDK_TELEMETRY") else _GLOBAL)


def trace_errors(module: ModuleType) -> None:
    """Wrap ``mistralai.client._hooks.tracing``."""
    wrap_functions(module, {"get_response_and_error": before(_mark_failed)})


def _mark_failed(call: Call) -> None:
    span, response = call.argument("span"), call.argument("response")
    if span is not None and response is not None:
        span.set_attribute(names.ERROR_TYPE, str(response.status_code))
        span.set_status(Status(StatusCode.ERROR, f"HTTP {response.status_code}"))
