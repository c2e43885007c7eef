"""Patch OpenLLMetry's openai instrumentor (0.62) so that it does not change the app.

Invariant: the app behaves as without spanloop. The patches undo: 1. A synchronous call runs ``asyncio.run`` in the
caller's thread, after which ``asyncio.get_event_loop()`` raises there. 2. The caller's own ``extra_headers`` gets a
``traceparent`` that stays in it for the next call. 3. Request headers, credentials included, land in
``gen_ai.headers``, with content capture off too. 4. Messages with an inline image lose all of their content, because
the default callback for images cannot be awaited. Names that a later version lacks are skipped.
"""

import hashlib
import logging
import sys
from collections.abc import Callable, Coroutine, MutableMapping
from functools import wraps
from types import ModuleType
from typing import Any, Final

from spanloop.instrumentation.loading.raw_streams import record_raw_streams

_PACKAGE: Final = "opentelemetry.instrumentation.openai"
_MODULES: Final = (
    "shared.chat_wrappers",
    "shared.completion_wrappers",
    "shared.embeddings_wrappers",
    "v1.responses_wrappers",
)
_HEADER_ARGUMENTS: Final = frozenset({"extra_headers", "headers"})

_logger = logging.getLogger(__name__)


def patch_openllmetry() -> None:
    """Patch the instrumentor's loaded modules."""
    for name in _MODULES:
        module = sys.modules.get(f"{_PACKAGE}.{name}")
        if module is not None:
            _patch(module)
    config: Any = getattr(sys.modules.get(f"{_PACKAGE}.shared.config"), "Config", None)
    if hasattr(config, "upload_base64_image"):
        config.upload_base64_image = _image_reference
    record_raw_streams()


def _patch(module: ModuleType) -> None:
    if hasattr(module, "run_async"):
        module.run_async = _run_without_loop  # type: ignore[attr-defined]
    set_attributes = getattr(module, "_set_request_attributes", None)
    if set_attributes is not None:
        module._set_request_attributes = _without_headers(set_attributes)  # type: ignore[attr-defined]  # noqa: SLF001
    propagate = getattr(module, "propagate_trace_context", None)
    if propagate is not None:
        module.propagate_trace_context = _with_own_headers(propagate)  # type: ignore[attr-defined]


async def _image_reference(trace_id: str, span_id: str, name: str, data_base64: str) -> str:
    """Return an inline image's digest as its reference in a span; equal images have equal digests."""
    del trace_id, span_id
    return f"sha256:{hashlib.sha256(data_base64.encode()).hexdigest()}#{name}"


def _run_without_loop(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run ``coroutine`` to its end: it never suspends, since no images are uploaded."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    _logger.debug("OpenLLMetry awaited something; the rest of the request's attributes is missing")


def _without_headers(set_attributes: Callable[..., None]) -> Callable[..., None]:
    @wraps(set_attributes)
    def set_all_but_headers(span: Any, arguments: MutableMapping[str, Any], *rest: Any, **named: Any) -> None:
        recorded = {name: value for name, value in arguments.items() if name not in _HEADER_ARGUMENTS}
        set_attributes(span, recorded, *rest, **named)

    return set_all_but_headers


def _with_own_headers(
    propagate: Callable[[Any, MutableMapping[str, Any]], None],
) -> Callable[[Any, MutableMapping[str, Any]], None]:
    @wraps(propagate)
    def propagate_into_copy(span: Any, arguments: MutableMapping[str, Any]) -> None:
        arguments["extra_headers"] = dict(arguments.get("extra_headers") or {})
        propagate(span, arguments)

    return propagate_into_copy
