"""Let every instrumentor record messages, or none, by the variables that each of them reads.

Invariant: a variable that the user set keeps its value; one "no" of the user is a "no" to all instrumentors.
"""

import os
from collections.abc import Iterable
from typing import Final

_GENAI: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SWITCHES: Final = (_GENAI, "TRACELOOP_TRACE_CONTENT")
"""Of OpenTelemetry's instrumentors and of OpenLLMetry's; spanloop's own modules read both."""
_HIDING: Final = ("OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS")
_OFF: Final = {_GENAI: "NO_CONTENT", "TRACELOOP_TRACE_CONTENT": "false"} | dict.fromkeys(_HIDING, "true")
_ON: Final = {_GENAI: "SPAN_ONLY", "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental"}
_SILENT_BY_DEFAULT: Final = tuple(
    f"opentelemetry.instrumentation.{name}" for name in ("genai.", "openai_v2", "google_genai")
)
"""OpenTelemetry's own instrumentors; the others record content unless they are told not to."""
_NO: Final = frozenset({"false", "0", "no", "off", "no_content", "none"})
_YES: Final = frozenset({"true", "1", "yes", "on"})


def captures_content() -> bool:
    """Whether messages, arguments and results may be recorded: yes, unless the user switched content capture off."""
    return not any(_value(name) in _NO for name in _SWITCHES) and not all(_value(name) in _YES for name in _HIDING)


def _value(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def switch_content_capture(modules: Iterable[str]) -> None:
    """Set the variables that the user left unset. To be called before an instrumentor is imported.

    Args:
        modules: Python modules of the instrumentors that will be switched on.
    """
    if not captures_content():
        defaults = _OFF
    elif any(module.startswith(_SILENT_BY_DEFAULT) for module in modules):
        defaults = _ON
    else:
        return
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
