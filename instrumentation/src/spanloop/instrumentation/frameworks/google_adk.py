"""Google ADK traces itself. It writes messages into spans where the environment asks for the current conventions.

A tool's exception that a plugin answers, such as ``ReflectAndRetryToolPlugin``, would otherwise not be recorded.
"""

import os
from types import ModuleType
from typing import Final

from spanloop.instrumentation.content_capture import captures_content

from .traced import record_error_argument, wrap_functions

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
    wrap_functions(module, {"PluginManager.run_on_tool_error_callback": record_error_argument("error")})
