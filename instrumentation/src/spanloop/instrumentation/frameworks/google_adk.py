"""Google ADK traces itself. It writes messages into spans where the environment asks for the current conventions.

A tool's exception that a plugin answers, such as ``ReflectAndRetryToolPlugin``, would otherwise not be recorded.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any, Final

from wrapt import wrap_function_wrapper

from spanloop.instrumentation.content_capture import captures_content

from .spans import record_tool_error

_SETTINGS: Final = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}


def switch_on(module: ModuleType) -> None:
    """Set what the user did not set. ADK reads the environment at each run."""
    del module
    if captures_content():
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)


def trace_tool_errors(module: ModuleType) -> None:
    """Wrap ``google.adk.plugins.plugin_manager``."""
    wrap_function_wrapper(module, "PluginManager.run_on_tool_error_callback", _on_error)


async def _on_error(
    run: Callable[..., Awaitable[Any]], _: object, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Any:
    error = named.get("error")
    if isinstance(error, BaseException):
        record_tool_error(error)
    return await run(*args, **named)
