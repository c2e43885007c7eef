"""The web application: routes, and what lives as long as it does."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final

import httpx
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from spanloop.authentication.api_keys import KeyRing
from spanloop.datadir import DataDir
from spanloop.spool import Spool
from spanloop.store import Store, connect

from .admin import Admin, admin_token
from .admission import Gate
from .api_errors import AnswerError
from .chat import ChatAnswer
from .chat_request import ChatRequest
from .control import NO_DEPLOYMENT, Control, EngineState
from .deployment import DeploymentFile
from .engine import ChildEngine, Engine, ExternalEngine
from .metrics import Metrics
from .pause import Pauses
from .recorder import Recorder
from .settings import GatewaySettings

_CONNECT_TIMEOUT_S: Final = 5.0
_TROUBLED: Final = frozenset({EngineState.RESTARTING, EngineState.FAILED})
_log: Final = logging.getLogger(__name__)


class Gateway:
    """Everything that one gateway process holds.

    Args:
        settings: What it was told.
        data_dir: Opened.

    Raises:
        SpanloopError: The data directory is not usable, or another gateway uses it.
    """

    def __init__(self, settings: GatewaySettings, data_dir: DataDir) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._started_s = time.time()
        self.metrics = Metrics()
        # An answer may take minutes; the caller's own timeout decides, by closing its connection.
        timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self.client = httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        self.gate = Gate(NO_DEPLOYMENT)
        self.recorder = Recorder(
            Spool(data_dir.generations, max_bytes=settings.spool_bytes),
            self._connect,
            data_dir.gateway / "rejected.jsonl",
            self.metrics,
        )
        self.control = Control(self._engine(), self.gate, DeploymentFile(data_dir), settings)
        self.pauses = Pauses(self.control)
        self._admin = Admin(self.control, self.pauses, self.metrics, admin_token(data_dir), KeyRing(data_dir))

    def application(self) -> Starlette:
        """The ASGI application; its lifespan starts and stops the engine."""
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/models", self._models),
                Route("/healthz", self._healthz),
                Route("/metrics", self._metrics_text),
                Route("/admin/deploy", self._admin.deploy, methods=["POST"]),
                Route("/admin/stop", self._admin.stop, methods=["POST"]),
                Route("/admin/pause", self._admin.pause, methods=["POST"]),
                Route("/admin/resume", self._admin.resume, methods=["POST"]),
                Route("/admin/status", self._admin.status),
            ],
            exception_handlers={AnswerError: _answer_error, HTTPException: _answer_routing_error},
            lifespan=self._lifespan,
        )

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        drain = asyncio.create_task(self.recorder.run(), name="capture-writer")
        drain.add_done_callback(_report_end)
        self.control.begin()
        try:
            yield
        finally:
            self.pauses.close()
            await self.control.close()
            drain.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await drain
            await self.recorder.close()
            await self.client.aclose()

    async def _chat(self, request: Request) -> ChatAnswer:
        length = request.headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise self._too_large()
        body = bytearray()
        # A chunked body names no length: it must not fill the memory before it is refused.
        async for piece in request.stream():
            body += piece
            if len(body) > self._settings.max_body_bytes:
                raise self._too_large()
        chat = ChatRequest.parse(bytes(body), request.headers.get("traceparent"))
        return ChatAnswer(chat, self, request.headers.get("authorization", ""))

    async def _models(self, _request: Request) -> Response:
        route = self.gate.route
        names = () if route is None else route.accepted_names[:2]
        models = [
            {"id": name, "object": "model", "created": int(self._started_s), "owned_by": "spanloop"} for name in names
        ]
        return JSONResponse({"object": "list", "data": models})

    async def _healthz(self, _request: Request) -> Response:
        status, spool = self.control.status, self.recorder.stats
        deployment = status.deployment
        return JSONResponse(
            {
                "status": "degraded" if status.state in _TROUBLED or self.recorder.last_error else "ok",
                "engine": status.state.value,
                "model": None if deployment is None else deployment.name,
                "version": None if deployment is None else deployment.version,
                "error": status.error,
                "paused_by": self.pauses.holders,
                "restarts": status.restarts,
                "start_duration_s": round(status.start_duration_s, 3),
                "running_requests": self.gate.running,
                "held_requests": self.gate.waiting,
                "captures": {
                    "waiting_records": spool.records,
                    "waiting_bytes": spool.bytes,
                    "oldest_age_s": round(spool.oldest_age_s, 1),
                    "last_insert": self.recorder.last_insert_s,
                    "error": self.recorder.last_error,
                },
            }
        )

    async def _metrics_text(self, _request: Request) -> Response:
        status, spool = self.control.status, self.recorder.stats
        text = self.metrics.text(
            {
                "engine_serving": float(status.state is EngineState.SERVING),
                "engine_restarts": status.restarts,
                "engine_start_duration_seconds": status.start_duration_s,
                "running_requests": self.gate.running,
                "held_requests": self.gate.waiting,
                "spool_bytes": spool.bytes,
                "spool_records": spool.records,
                "spool_oldest_age_seconds": spool.oldest_age_s,
                "last_insert_timestamp_seconds": self.recorder.last_insert_s,
            }
        )
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    def _engine(self) -> Engine:
        if self._settings.upstream:
            return ExternalEngine(self._settings.upstream, self.client)
        return ChildEngine(self._settings.engine, self.client, self._data_dir.logs / "engine.log")

    def _connect(self) -> Store:
        return connect(self._data_dir)

    def _too_large(self) -> AnswerError:
        limit = self._settings.max_body_bytes
        return AnswerError(413, f"The request is larger than the {limit} bytes that are accepted.", code="too_large")


def _report_end(writer: asyncio.Task[None]) -> None:
    """The writer only ends when it is told to; captures go on piling up on disk otherwise."""
    if not writer.cancelled() and (error := writer.exception()) is not None:
        _log.error("the capture writer broke; captures stay on disk until the gateway is restarted", exc_info=error)


async def _answer_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, AnswerError):
        raise error
    return error.response()


async def _answer_routing_error(request: Request, error: Exception) -> Response:
    """Answer a path (404) or method (405) that does not exist in OpenAI's format, and name those that exist."""
    if not isinstance(error, HTTPException):
        raise error
    call = f"{request.method} {request.url.path}"
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message, code = f"There is no {call}; the methods of this path: {allowed}.", "method_not_allowed"
        return AnswerError(error.status_code, message, code=code).response(Allow=allowed)
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    existing = ", ".join(f"{'|'.join(sorted((route.methods or set()) - {'HEAD'}))} {route.path}" for route in routes)
    message = f"There is no {call}; the routes of this gateway: {existing}."
    return AnswerError(error.status_code, message, code="unknown_route").response()
