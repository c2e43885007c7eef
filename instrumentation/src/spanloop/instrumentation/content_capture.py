"""Let every instrumentor record messages, or none, by the variables that each of them reads.

Invariant: a variable that the user set keeps its value; one "no" of the user is a "no" to all instrumentors.
"""

import os
from typing import Final

_GENAI: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SWITCHES: Final = (_GENAI, "TRACELOOP_TRACE_CONTENT")
"""Of OpenTelemetry's instrumentors and of OpenLLMetry's; spanloop's own modules read both."""
_HIDING: Final = ("OPENINFERENCE_HIDE_INPUTS", "OPENINFERENCE_HIDE_OUTPUTS")
_NO: Final = frozenset({"false", "0", "no", "off", "no_content", "none"})
_YES: Final = frozenset({"true", "1", "yes", "on"})


def captures_content() -> bool:
    """Whether messages, arguments and results may be recorded: yes, unless the user switched content capture off."""
    return not any(_value(name) in _NO for name in _SWITCHES) and not all(_value(name) in _YES for name in _HIDING)


def _value(name: str) -> str:
    return os.environ.get(name, "").strip().lower()


def switch_content_capture() -> None:
    """Set the variables that the user left unset. To be called before an instrumentor is imported."""
    if captures_content():
        os.environ.setdefault(_GENAI, "true")  # the others record content by default
        return
    for name in _SWITCHES:
        os.environ.setdefault(name, "false")
    for name in _HIDING:
        os.environ.setdefault(name, "true")
