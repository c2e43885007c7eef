"""The HTTP side: read, hand over, answer.

Invariant: 200 means that every accepted item is on disk; every other answer means that nothing of the request was
accepted, and says in google.rpc.Status why.
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

from spanloop.authentication.api_keys import Scope as KeyScope

from .otlp_http import NO_METRICS, Head, read_body, refused_response, send_accepted
from .receiver import Receiver
from .request_errors import RefusedError, RpcCode
from .scores_endpoint import PATH as SCORES_PATH
from .scores_endpoint import score_receiver
from .validation import JSON, Signal

_SIGNALS: Final = {"/v1/traces": Signal.TRACES, "/v1/logs": Signal.LOGS}


def create_app(receiver: Receiver) -> ASGIApp:
    """The app; the caller owns the receiver and runs the writer."""
    others = _others(receiver)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Spans and logs without Starlette: its layers cost as much as reading a small request.
        signal = _SIGNALS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if signal is None:
            await others(scope, receive, send)
            return
        head = Head.of(scope)
        try:
            receiver.guard.check(head.authorization, KeyScope.INGEST)
            with receiver.budget.share() as share:
                body = await read_body(head, receive, receiver, share)
                validation = await receiver.receive(signal, body, head.content_type)
        except RefusedError as refused:
            receiver.refused(signal, refused)
            await refused_response(head, refused)(scope, receive, send)
        except ClientDisconnect:
            # Nobody is left to read an answer; the sender tries again.
            await Response(status_code=HTTPStatus.BAD_REQUEST)(scope, receive, send)
        else:
            await send_accepted(send, signal, validation, head.content_type)

    return app


def _others(receiver: Receiver) -> Starlette:
    """What is asked less often."""

    async def healthz(_: Request) -> Response:
        return Response(json.dumps(receiver.health.report(receiver.spool.stats, receiver.metrics)), media_type=JSON)

    async def prometheus(request: Request) -> Response:
        head = Head.of(request.scope)
        try:
            receiver.guard.check(head.authorization, KeyScope.READ)
        except RefusedError as refused:
            return refused_response(head, refused)
        stats, metrics = receiver.spool.stats, receiver.metrics
        metrics.set("spool_bytes", stats.bytes)
        metrics.set("spool_records", stats.records)
        metrics.set("spool_oldest_age_seconds", stats.oldest_age_s)
        metrics.set("spool_quarantined", stats.quarantined)
        metrics.set("bodies_in_memory_bytes", receiver.budget.held_bytes)
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            *(Route(path, _only_post, methods=["POST"]) for path in _SIGNALS),
            Route(SCORES_PATH, score_receiver(receiver), methods=["POST"]),
            Route("/v1/metrics", _no_metrics, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", prometheus),
        ],
        exception_handlers={HTTPException: _http_error},
    )


async def _only_post(_: Request) -> Response:
    """Never called: it makes another method than POST, which `create_app` takes itself, a 405 instead of a 404."""
    raise AssertionError("a POST of spans or logs went past the receiver")


async def _no_metrics(request: Request) -> Response:
    refused = RefusedError(HTTPStatus.NOT_FOUND, RpcCode.UNIMPLEMENTED, NO_METRICS)
    return refused_response(Head.of(request.scope), refused)


async def _http_error(request: Request, error: Exception) -> Response:
    """Report an unknown path or method in the client's encoding; a 405 names the allowed methods."""
    status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    headers = (isinstance(error, HTTPException) and error.headers) or {}
    allow = ", ".join(sorted(headers.get("Allow", "").split(", ")))
    expected = allow or f"POST to /v1/traces, /v1/logs or {SCORES_PATH}"
    message = f"{request.method} {request.url.path}: {status.phrase}; expected {expected}"
    code = RpcCode.NOT_FOUND if status is HTTPStatus.NOT_FOUND else RpcCode.UNIMPLEMENTED
    response = refused_response(Head.of(request.scope), RefusedError(status, code, message))
    if allow:
        response.headers["Allow"] = allow
    return response
