"""What OpenLLMetry's openai instrumentor (0.62) does to an app, undone.

Invariant: the app behaves as it does without us. 1. A synchronous call runs ``asyncio.run`` in the caller's thread,
after which ``asyncio.get_event_loop()`` raises there. 2. The caller's own ``extra_headers`` gets a ``traceparent`` that
stays in it for the next call. Whatever a later version has renamed is left alone.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, MutableMapping
from functools import wraps
from types import ModuleType
from typing import Any, Final

_PACKAGE: Final = "opentelemetry.instrumentation.openai.shared"


def mend_openllmetry() -> None:
    """Patch the instrumentor's modules, as far as they are loaded."""
    for name in ("chat_wrappers", "completion_wrappers", "embeddings_wrappers"):
        module = sys.modules.get(f"{_PACKAGE}.{name}")
        if module is not None:
            _mend(module)


def _mend(module: ModuleType) -> None:
    if hasattr(module, "run_async"):
        module.run_async = _run_aside  # type: ignore[attr-defined]
    propagate = getattr(module, "propagate_trace_context", None)
    if propagate is not None:
        module.propagate_trace_context = _with_own_headers(propagate)  # type: ignore[attr-defined]


def _run_aside(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run ``coroutine`` to its end in a thread of its own, whose event loop is nobody else's."""
    thread = threading.Thread(target=asyncio.run, args=(coroutine,), name="spanloop-openllmetry")
    thread.start()
    thread.join()


def _with_own_headers(
    propagate: Callable[[Any, MutableMapping[str, Any]], None],
) -> Callable[[Any, MutableMapping[str, Any]], None]:
    @wraps(propagate)
    def propagate_into_copy(span: Any, arguments: MutableMapping[str, Any]) -> None:
        arguments["extra_headers"] = dict(arguments.get("extra_headers") or {})
        propagate(span, arguments)

    return propagate_into_copy
