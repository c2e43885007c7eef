"""The processor that remembers the newest model call.

Invariant: spans are left as they are.
"""

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

from spanloop.instrumentation.calls.model_calls import ModelCall, can_hold_messages, is_model_call, remember
from spanloop.instrumentation.exception_guard import guard


class ModelCallProcessor(SpanProcessor):
    """Remembers each model call when it ends, in the thread and asyncio task where it ends."""

    @guard("a model call was not remembered", None)
    def on_end(self, span: ReadableSpan) -> None:
        """Remember ``span`` if it is a model call's."""
        if is_model_call(span) and can_hold_messages(span):
            remember(ModelCall(span))
