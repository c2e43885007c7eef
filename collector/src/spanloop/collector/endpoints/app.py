"""The collector's HTTP app: read OTLP requests, store them, acknowledge them.

Invariant: 200 acknowledges a request: every accepted item is on disk. Every other status means that nothing of the
request was accepted; its google.rpc.Status states the reason.
"""

import json
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from spanloop.foundation.keys.api_keys import Scope as KeyScope
from spanloop.foundation.telemetry.metrics import MEDIA_TYPE

from ..receiver import Receiver
from ..validation import JSON, Signal
from .otlp_http import NO_METRICS, RequestHead, acknowledge, admit, error_response, read_body
from .request_errors import RefusedError, RpcCode
from .scores_endpoint import PATH as SCORES_PATH
from .scores_endpoint import create_scores_endpoint

_SIGNALS: Final = {"/v1/traces": Signal.TRACES, "/v1/logs": Signal.LOGS}


def create_app(receiver: Receiver) -> ASGIApp:
    """Create the app; the caller owns the receiver and runs the writer."""
    starlette_app = _create_starlette_app(receiver)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Spans and logs bypass Starlette: its layers cost as much as reading a small request.
        signal = _SIGNALS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if signal is None:
            await starlette_app(scope, receive, send)
            return
        head = RequestHead.of(scope)
        try:
            with (
                await admit(head, KeyScope.INGEST, receive, receiver) as admission,
                receiver.memory_budget.reserve() as reservation,
            ):
                body = await read_body(head, receive, receiver, reservation, limit_bytes=admission.body_bytes)
                validation = await receiver.receive(signal, body, head.content_type)
        except RefusedError as error:
            receiver.record_refused(signal, error)
            await error_response(head, error)(scope, receive, send)
        except ClientDisconnect:
            # Nothing reads this response; the client retries.
            await Response(status_code=HTTPStatus.BAD_REQUEST)(scope, receive, send)
        else:
            await acknowledge(send, signal, validation, head.content_type)

    return app


def _create_starlette_app(receiver: Receiver) -> Starlette:
    """Create the routes that are requested less often."""

    async def healthz(_: Request) -> Response:
        return Response(json.dumps(receiver.health.report(receiver.spool.stats, receiver.metrics)), media_type=JSON)

    async def prometheus(request: Request) -> Response:
        head = RequestHead.of(request.scope)
        try:
            receiver.authenticator.authenticate(head.authorization, KeyScope.READ)
        except RefusedError as error:
            return error_response(head, error)
        stats, metrics = receiver.spool.stats, receiver.metrics
        metrics.set("spool_bytes", stats.bytes)
        metrics.set("spool_records", stats.records)
        metrics.set("spool_oldest_age_seconds", stats.oldest_age_s)
        metrics.set("spool_quarantined", stats.quarantined)
        metrics.set("bodies_in_memory_bytes", receiver.memory_budget.reserved_bytes)
        return Response(metrics.render(), media_type=MEDIA_TYPE)

    async def no_metrics(request: Request) -> Response:
        head = RequestHead.of(request.scope)
        try:
            receiver.authenticator.authenticate(head.authorization, KeyScope.INGEST)
        except RefusedError as error:
            return error_response(head, error)
        return error_response(head, RefusedError(HTTPStatus.NOT_FOUND, RpcCode.UNIMPLEMENTED, NO_METRICS))

    return Starlette(
        routes=[
            *(Route(path, _post_only, methods=["POST"]) for path in _SIGNALS),
            Route(SCORES_PATH, create_scores_endpoint(receiver), methods=["POST"]),
            Route("/v1/metrics", no_metrics, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", prometheus),
        ],
        exception_handlers={HTTPException: _http_error},
    )


async def _post_only(_: Request) -> Response:
    """Make a method other than POST a 405 instead of a 404; never called, because `create_app` handles POST itself."""
    raise AssertionError("a POST of spans or logs bypassed the receiver")


async def _http_error(request: Request, error: Exception) -> Response:
    """Report an unknown path or method in the client's encoding; a 405 names the allowed methods."""
    status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    headers = (isinstance(error, HTTPException) and error.headers) or {}
    allow = ", ".join(sorted(headers.get("Allow", "").split(", ")))
    expected = allow or f"POST to /v1/traces, /v1/logs or {SCORES_PATH}"
    message = f"{request.method} {request.url.path}: {status.phrase}; expected {expected}"
    code = RpcCode.NOT_FOUND if status is HTTPStatus.NOT_FOUND else RpcCode.UNIMPLEMENTED
    response = error_response(RequestHead.of(request.scope), RefusedError(status, code, message))
    if allow:
        response.headers["Allow"] = allow
    return response
