"""The HTTP side: read, hand over, answer.

Invariant: 200 means that every accepted item is on disk; every other answer means that nothing of the request was
accepted, and says in google.rpc.Status why.
"""

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from spanloop.store.keys import Scope

from .admission import JSON, Signal
from .intake import Intake
from .otlp_http import (
    NO_METRICS,
    accepted_response,
    authorization_of,
    content_type_of,
    read_body,
    refused_response,
)
from .refusal import RefusedError, RpcCode
from .routes_scores import PATH as SCORES_PATH
from .routes_scores import score_receiver


def create_app(intake: Intake) -> Starlette:
    """The app; the caller owns the intake and runs the writer."""

    def receiver(signal: Signal) -> Callable[[Request], Awaitable[Response]]:
        async def receive(request: Request) -> Response:
            content_type = content_type_of(request)
            try:
                intake.guard.check(authorization_of(request), Scope.INGEST)
                with intake.budget.share() as share:
                    body = await read_body(request, intake.settings, share)
                    admission = await intake.receive(signal, body, content_type)
            except RefusedError as refused:
                intake.refused(signal, refused)
                return refused_response(request, refused)
            except ClientDisconnect:
                # Nobody is left to read an answer; the sender tries again.
                return Response(status_code=HTTPStatus.BAD_REQUEST)
            return accepted_response(signal, admission, content_type)

        return receive

    async def healthz(_: Request) -> Response:
        return Response(json.dumps(intake.health.report(intake.spool.stats, intake.metrics)), media_type=JSON)

    async def prometheus(request: Request) -> Response:
        try:
            intake.guard.check(authorization_of(request), Scope.READ)
        except RefusedError as refused:
            return refused_response(request, refused)
        stats, metrics = intake.spool.stats, intake.metrics
        metrics.set("spool_bytes", stats.bytes)
        metrics.set("spool_records", stats.records)
        metrics.set("spool_oldest_age_seconds", stats.oldest_age_s)
        metrics.set("spool_quarantined", stats.quarantined)
        metrics.set("bodies_in_memory_bytes", intake.budget.held_bytes)
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/v1/traces", receiver(Signal.TRACES), methods=["POST"]),
            Route("/v1/logs", receiver(Signal.LOGS), methods=["POST"]),
            Route(SCORES_PATH, score_receiver(intake), methods=["POST"]),
            Route("/v1/metrics", _no_metrics, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/metrics", prometheus),
        ],
        exception_handlers={HTTPException: _http_error},
    )


async def _no_metrics(request: Request) -> Response:
    return refused_response(request, RefusedError(HTTPStatus.NOT_FOUND, RpcCode.UNIMPLEMENTED, NO_METRICS))


async def _http_error(request: Request, error: Exception) -> Response:
    """No such path or method, said in the sender's encoding."""
    status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus.INTERNAL_SERVER_ERROR
    expected = f"POST to /v1/traces, /v1/logs or {SCORES_PATH}"
    message = f"{request.method} {request.url.path}: {status.phrase}; expected {expected}"
    code = RpcCode.NOT_FOUND if status is HTTPStatus.NOT_FOUND else RpcCode.UNIMPLEMENTED
    return refused_response(request, RefusedError(status, code, message))
