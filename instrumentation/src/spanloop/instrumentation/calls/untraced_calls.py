"""Name the hosts of models that the app calls without a span: plain HTTP, or an SDK whose instrumentor is missing.

A span of an SDK's own that never holds messages is none here, unless the user wants no messages.

A call is traced if a model call's span covers its start. That holds for each way of instrumenting: a span that is
current during the request, one that a callback opens, and one that is written after the response. The first call of a
client to a host decides for all of them; a call while another one is traced counts as traced.

Invariant: one line a host. It is named at exit, or when its first call is `PATIENCE_NS` old and the next one starts.
"""

import atexit
import os
import time
from typing import Final

from opentelemetry import trace
from opentelemetry.instrumentation.utils import is_instrumentation_enabled  # pyright: ignore[reportUnknownVariableType]
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanloop.instrumentation.calls.http_clients import ModelRequest, watch_http_clients
from spanloop.instrumentation.calls.model_calls import can_hold_messages, is_model_call
from spanloop.instrumentation.content_capture import captures_content
from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.loading.libraries import LIBRARIES
from spanloop.instrumentation.notice import print_line

NAME: Final = "untraced_calls"
"""As ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` calls it."""
PATIENCE_NS: Final = 300 * 10**9
"""A model call that takes longer is rare; its span may still be open."""

_REFUSALS: Final = frozenset(
    {"*", NAME, *(one.module.rpartition(".")[2] for library in LIBRARIES for one in library.candidates)}
)
"""Who switches an instrumentor of models off knows of the calls that it leaves out."""
_SAMPLER_ENV: Final = "OTEL_TRACES_SAMPLER"
_KEEPS_ALL: Final = frozenset({"", "always_on", "parentbased_always_on"})
_Key = tuple[str, str]


class UntracedCalls(SpanProcessor):
    """Compares requests to models with the spans that end."""

    def __init__(self) -> None:
        self._waiting: dict[_Key, tuple[int, ModelRequest]] = {}
        """Host and client → start in nanoseconds of the first call, until a span covers it."""
        self._settled: set[_Key] = set()
        """Those that are traced, or whose host was named."""
        self._named: set[str] = set()

    def start(self) -> None:
        """Watch the HTTP clients, unless a sampler or the user's own choice leaves calls without spans."""
        switched_off = {name.strip() for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")}
        if os.environ.get(_SAMPLER_ENV, "").strip() in _KEEPS_ALL and not _REFUSALS & switched_off:
            watch_http_clients(self.record)
            atexit.register(self.report)

    def record(self, request: ModelRequest, now_ns: int = 0) -> None:
        """Note a call that starts.

        Args:
            request: Its address and client.
            now_ns: The time since the epoch in nanoseconds; 0 is now.
        """
        key = (request.host, request.client)
        if key in self._settled or not is_instrumentation_enabled() or _is_unsampled():
            return
        now = now_ns or time.time_ns()
        first, _ = self._waiting.setdefault(key, (now, request))
        if now - first > PATIENCE_NS:
            self._report(key)

    @guard("model calls without a span are not noticed", None)
    def on_end(self, span: ReadableSpan) -> None:
        """Take the calls that ``span`` covers off the list."""
        if not self._waiting or not is_model_call(span) or span.start_time is None or span.end_time is None:
            return
        if captures_content() and not can_hold_messages(span):
            return
        for key, (start_ns, _) in tuple(self._waiting.items()):
            if span.start_time <= start_ns <= span.end_time:
                self._settled.add(key)
                self._waiting.pop(key, None)

    def report(self) -> None:
        """Name each host that was called and has no span."""
        for key in tuple(self._waiting):
            self._report(key)

    def _report(self, key: _Key) -> None:
        self._settled.add(key)
        _, request = self._waiting.pop(key, (0, None))
        if request is not None and request.host not in self._named:
            self._named.add(request.host)
            print_line(
                f"model calls to {request.host} (POST {request.path} by {request.client}) are not traced with their "
                "messages, so nothing learns from them; `spanloop instrument` shows what traces which library"
            )


def _is_unsampled() -> bool:
    """Whether the caller's trace is not recorded; then the call's span is not either."""
    context = trace.get_current_span().get_span_context()
    return context.is_valid and not context.trace_flags.sampled
