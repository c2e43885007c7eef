"""The HTTP side: validate, spool, answer.

Invariant: 200 means that every accepted item is on disk; every other answer means that nothing of the request is.
No request waits for ClickHouse.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from spanloop.store.spool import Spool, SpoolDiskError, SpoolFullError

from .admission import Admission, Signal, admit
from .health import Health
from .metrics import Metrics
from .otlp_http import JSON, RefusedError, RpcCode, accepted_response, read_body, reasons, refused_response
from .settings import Settings
from .wire import MalformedError

_log = logging.getLogger(__name__)
_RETRY_AFTER_S: Final = 2
_INLINE_BYTES: Final = 256 * 1024
"""Bodies up to this are checked on the event loop (about a millisecond); larger ones in a thread."""


class _Complaints:
    """Warnings about requests, at most one a second: a sender that is wrong is wrong many times."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._silent = 0

    def warn(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._silent += 1
            return
        more = f" (and {self._silent} complaints before it)" if self._silent else ""
        _log.warning("%s%s", text, more)
        self._next_s, self._silent = now_s + 1.0, 0


def create_app(spool: Spool, metrics: Metrics, health: Health, settings: Settings) -> Starlette:
    """The app; the caller owns the spool and runs the writer."""
    complaints = _Complaints()

    def receiver(signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def receive(request: Request) -> Response:
            try:
                body = await read_body(request, settings.body_limit_bytes)
                admission = await _admit(signal, body)
                if admission.accepted:
                    await _store(spool, signal, admission.body)
            except RefusedError as refused:
                metrics.count("refused_requests_total", signal=signal, status=str(int(refused.status)))
                complaints.warn(f"refused {signal} with {int(refused.status)}: {refused.message}")
                return refused_response(request, refused)
            except ClientDisconnect:
                # Nobody is left to read an answer; the sender tries again.
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            _count(metrics, signal, admission)
            if admission.rejected:
                complaints.warn(f"rejected from {signal}: {reasons(admission)}")
            return accepted_response(signal, admission)

        return receive

    async def healthz(_: Request) -> Response:
        return Response(json.dumps(health.report(spool.stats)), media_type=JSON)

    async def prometheus(_: Request) -> Response:
        stats = spool.stats
        metrics.set("spool_bytes", stats.bytes)
        metrics.set("spool_records", stats.records)
        metrics.set("spool_oldest_age_seconds", stats.oldest_age_s)
        metrics.set("spool_quarantined", stats.quarantined)
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/v1/traces", receiver(Signal.TRACES), methods=["POST"]),
            Route("/v1/logs", receiver(Signal.LOGS), methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", prometheus),
        ]
    )


async def _admit(signal: Signal, body: bytes) -> Admission:
    try:
        if len(body) <= _INLINE_BYTES:
            return admit(signal, body)
        return await asyncio.to_thread(admit, signal, body)
    except MalformedError as error:
        message = f"not an OTLP {signal} request: {error}"
        raise RefusedError(HTTPStatus.BAD_REQUEST, RpcCode.INVALID_ARGUMENT, message) from error


async def _store(spool: Spool, signal: Signal, body: bytes) -> None:
    try:
        await spool.append(signal, body)
    except (SpoolFullError, SpoolDiskError) as error:
        raise RefusedError(
            HTTPStatus.SERVICE_UNAVAILABLE, RpcCode.UNAVAILABLE, error.what, retry_after_s=_RETRY_AFTER_S
        ) from error


def _count(metrics: Metrics, signal: Signal, admission: Admission) -> None:
    metrics.count("accepted_total", admission.accepted, signal=signal)
    metrics.count("repaired_total", admission.repaired, signal=signal)
    metrics.count("dropped_attributes_total", admission.dropped_attributes, signal=signal)
    for reason, count in admission.rejected.items():
        metrics.count("rejected_total", count, signal=signal, reason=reason)
