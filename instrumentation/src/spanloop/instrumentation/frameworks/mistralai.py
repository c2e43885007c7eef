"""The Mistral SDK (from 3) traces itself where ``MISTRAL_SDK_TELEMETRY`` or its client asks for it.

It calls only an answer with ``"object": "error"`` an error; every other one that the API refuses is marked here.
"""

import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from opentelemetry.trace import Status, StatusCode
from wrapt import wrap_function_wrapper

from spanloop.instrumentation.content_capture import captures_content
from spanloop.instrumentation.exception_guard import guard
from spanloop.semconv import attributes as names

_GLOBAL: Final = "global"
"""The setting for spans through OpenTelemetry's global provider."""


def switch_on(module: ModuleType) -> None:
    """Wrap ``mistralai.extra.observability.telemetry``; it cannot leave out what is said."""
    if captures_content():
        wrap_function_wrapper(module, "_resolve_mistral_telemetry_env", _setting)


def _setting(
    resolve: Callable[..., str | None], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> str | None:
    return resolve(*args, **named) or (None if os.environ.get("MISTRAL_SDK_TELEMETRY") else _GLOBAL)


def trace_errors(module: ModuleType) -> None:
    """Wrap ``mistralai.client._hooks.tracing``."""
    wrap_function_wrapper(module, "get_response_and_error", _get_response_and_error)


def _get_response_and_error(get: Callable[..., Any], _: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    _mark_failed(named.get("span"), named.get("response"))
    return get(*args, **named)


@guard("a refused request was not recorded", None)
def _mark_failed(span: Any, response: Any) -> None:
    if span is not None and response is not None:
        span.set_attribute(names.ERROR_TYPE, str(response.status_code))
        span.set_status(Status(StatusCode.ERROR, f"HTTP {response.status_code}"))
