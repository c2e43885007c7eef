"""Carry OpenTelemetry's context into threads and thread pools, where agents run their tools.

Invariant: a thread that is started, and a task that is given to a pool, within a span runs in that span's context; it
has the newest model call of its starter. Without either nothing is changed. A pool's worker keeps no context: it
outlives the span in which it was started.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from opentelemetry.context import Context, attach, detach, get_current
from wrapt import wrap_function_wrapper

from spanloop.instrumentation.calls.model_calls import ModelCall, newest_model_call, remember

NAME: Final = "threading"
"""As ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS`` calls it."""
_NOTHING: Final = Context()


def carry_context_into_threads() -> None:
    """Wrap ``Thread.start`` and ``ThreadPoolExecutor.submit``; to be called once."""
    wrap_function_wrapper(threading.Thread, "start", _start)
    wrap_function_wrapper(ThreadPoolExecutor, "submit", _submit)


def _start(start: Callable[..., None], thread: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    context, call = get_current(), newest_model_call()
    if context or call:
        # On the object, not on the class: subclasses have a ``run`` of their own.
        thread.run = partial(_run_in, context, call, thread.run)
    start(*args, **named)


def _submit(
    submit: Callable[..., Future[Any]], _: ThreadPoolExecutor, args: tuple[Any, ...], named: Mapping[str, Any]
) -> Future[Any]:
    context, call = get_current(), newest_model_call()
    if not (context or call) or not args:
        return submit(*args, **named)
    function, *rest = args
    token = attach(_NOTHING)
    try:
        return submit(partial(_run_in, context, call, function), *rest, **named)
    finally:
        detach(token)


def _run_in(context: Context, call: ModelCall | None, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    token = attach(context)
    remember(call)
    try:
        return function(*args, **named)
    finally:
        remember(None)
        detach(token)
