"""The gateway's ASGI application: routes, and start and end of the engine and the recorder."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.api_keys import Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Limits
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.foundation.telemetry.metrics import MEDIA_TYPE
from spanloop.semconv.environment import KEY_ENV, read_setting
from spanloop.spool import Spool
from spanloop.store import Store, connect

from .admin import Admin
from .api_errors import ApiError, DefectError
from .apis.body_reader import BodyReader
from .apis.response_store import ResponseStore
from .apis.routes import ApiRoutes, error_response
from .authentication import Authenticator
from .canary.admin import CanaryAdmin
from .canary.canaries import Canaries
from .canary.canary import Canary
from .canary.candidate import Candidate
from .canary.shadow import Shadows
from .capture.recorder import Recorder
from .chat.completions import HISTORY_HEADER
from .client.engine_client import EngineClient
from .continuation.continuer import Continuer
from .continuation.conversation_log import ConversationLog
from .drain import Drain
from .engine.admission import AdmissionControl, AdmissionLimits
from .engine.gate import EngineEndpoint
from .engine.lifecycle import NO_DEPLOYMENT
from .engine.status import EngineState
from .engine.upstream_weights import FixedWeights
from .fencing import FencingTokens
from .following.follower import Follower
from .following.leader import Leader
from .health import GatewayHealth
from .metered_keys import MeteredKeys
from .metrics import Metrics
from .model_names import ModelNames
from .pauses import Pauses
from .served_models.engine_factory import EngineFactory
from .served_models.engine_group import EngineGroup
from .served_models.further_deployments import FurtherDeployments
from .served_models.further_models import FurtherModels

_log: Final = logging.getLogger(__name__)


class Gateway:
    """The parts of one gateway process.

    Args:
        settings: The process's settings.
        data_dir: The data directory, open.
        limits: Limits of rate, concurrency and body size by API key.

    Raises:
        SpanloopError: The data directory is unusable, or another gateway uses it.
    """

    def __init__(self, settings: GatewaySettings, data_dir: DataDir, limits: Limits = Limits()) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._started_s = time.time()
        self.metrics = Metrics()
        self.client = EngineClient()
        if settings.upstream_key_file is not None:
            key = settings.upstream_key_file.read_text(encoding="utf-8").strip()
            for url in settings.upstreams:
                self.client.authorize(url, key)
        if settings.follow:
            self.client.authorize(settings.follow, _key_for(settings.follow))
        self.recorder = Recorder(
            Spool(data_dir.generations, max_bytes=settings.spool_bytes),
            self._connect,
            data_dir.gateway / "rejected.jsonl",
            self.metrics,
        )
        self._factory = EngineFactory(settings, self.client, data_dir)
        self.admission = AdmissionControl(
            NO_DEPLOYMENT,
            engines=self._factory.count,
            limits=AdmissionLimits(settings.engine_requests, settings.waiting_requests),
            on_refusal=lambda: self._count_refusal("overloaded"),
        )
        self.lifecycle = EngineGroup(
            self._factory.first_lifecycles(self.admission.gates),
            FurtherModels(self.admission, self._factory, FurtherDeployments(data_dir)),
        )
        self.canaries = Canaries(data_dir, self.admission, self.lifecycle, self._make_candidate)
        self.shadows = Shadows(self.client, self.metrics)
        self.pauses = Pauses(self.canaries)
        self.drain = Drain(lambda: self._count_refusal("draining"))
        self.continuer = Continuer(
            self.client,
            self.metrics,
            settings.conversation_bytes,
            log=ConversationLog(data_dir.gateway / "conversations.jsonl"),
            read_ids=self._read_ids,
        )
        self.names = ModelNames(data_dir, self._is_deployed)
        self.metered = MeteredKeys()
        self._authenticator = Authenticator(data_dir, limits, self._count_refusal, self.metered)
        responses = ResponseStore(
            data_dir.gateway / "responses", settings.responses_bytes, settings.responses_days * 86_400
        )
        self._bodies = BodyReader(settings.max_body_bytes, settings.bodies_bytes, lambda: self._count_refusal("memory"))
        self._apis = ApiRoutes(self, self._authenticator, responses, self._bodies, max_choices=settings.max_choices)
        self.leader = leader = Leader(settings.follow, settings.port)
        tokens = FencingTokens(data_dir)
        self._admin = Admin(
            self.lifecycle,
            self.pauses,
            self.metrics,
            authenticator=self._authenticator,
            tokens=tokens,
            canaries=self.canaries,
            names=self.names,
            metered=self.metered,
            leader=leader,
            data_dir=data_dir,
        )
        self._canary_admin = CanaryAdmin(self.canaries, self.pauses, self._authenticator, leader, data_dir)
        self._health = GatewayHealth(self)
        self.follower = Follower(leader, self.client, self.lifecycle, self.names, self._admin.carry_out)

    def _count_refusal(self, reason: str) -> None:
        self.metrics.count("refused_total", reason=reason)

    def _is_deployed(self, name: str) -> bool:
        deployments = (status.deployment for status in self.lifecycle.statuses)
        return any(deployment is not None and deployment.name == name for deployment in deployments)

    def application(self) -> Starlette:
        """Return the ASGI application; its lifespan starts and stops the engine."""
        return Starlette(
            routes=[
                *self._apis.routes(),
                Route("/v1/models", self._models),
                Route("/v1/models/{id:path}", self._model),
                Route("/healthz", self._health.report),
                Route("/readyz", self._health.readiness),
                Route("/metrics", self._metrics_text),
                Route("/admin/deploy", self._admin.deploy, methods=["POST"]),
                Route("/admin/stop", self._admin.stop, methods=["POST"]),
                Route("/admin/deployments", self._admin.deployments),
                Route("/admin/names", self._admin.names, methods=["POST"]),
                Route("/admin/pause", self._admin.pause, methods=["POST"]),
                Route("/admin/resume", self._admin.resume, methods=["POST"]),
                Route("/admin/metered", self._admin.metered, methods=["POST"]),
                Route("/admin/status", self._admin.status),
                Route("/admin/canary", self._canary_admin.status, methods=["GET"]),
                Route("/admin/canary", self._canary_admin.start, methods=["POST"]),
                Route("/admin/canary/stop", self._canary_admin.stop, methods=["POST"]),
            ],
            exception_handlers={
                ApiError: _answer_api_error,
                HTTPException: _answer_routing_error,
                Exception: self._answer_defect,
            },
            middleware=self._middleware(),
            lifespan=self._lifespan,
        )

    def _middleware(self) -> list[Middleware]:
        origins = self._settings.cors_origins.split()
        if not origins:
            return []
        every, exposed = ["*"], ["x-request-id", "retry-after", HISTORY_HEADER]
        return [
            Middleware(
                CORSMiddleware, allow_origins=origins, allow_methods=every, allow_headers=every, expose_headers=exposed
            )
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None]:
        writer = asyncio.create_task(self.recorder.run(), name="capture-writer")
        writer.add_done_callback(_log_failure)
        self.lifecycle.start()
        self.canaries.resume_stored()
        following = asyncio.create_task(self.follower.run(), name="follower")
        following.add_done_callback(_log_failure)
        try:
            yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            self.pauses.close()
            await self.shadows.close()
            await self.canaries.close()
            await self.lifecycle.close()
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
            await self.recorder.close()
            self.continuer.close()
            await self.client.aclose()

    async def _models(self, request: Request) -> Response:
        self._authenticator.admit(request, Scope.SERVE).end()
        return JSONResponse({"object": "list", "data": self._model_cards()})

    async def _model(self, request: Request) -> Response:
        self._authenticator.admit(request, Scope.SERVE).end()
        name, cards = request.path_params["id"], self._model_cards()
        card = next((card for card in cards if card["id"] == name), None)
        if card is None:
            served = ", ".join(repr(card["id"]) for card in cards)
            raise ApiError(
                404, f"The model {name!r:.120} is not served here; served: {served}.", code="model_not_found"
            )
        return JSONResponse(card)

    def _model_cards(self) -> list[dict[str, Any]]:
        served = {
            name: endpoint
            for endpoint in self.admission.endpoints
            for name in (*endpoint.accepted_names[:2], *self.names.of(endpoint.deployment.name))
        }
        models = list(served.items())
        candidate = self.canaries.candidate
        if candidate is not None and candidate.admission.endpoint is not None:
            models.append((candidate.canary.candidate.label, candidate.admission.endpoint))
        return [self._model_card(*model) for model in models]

    def _model_card(self, name: str, endpoint: EngineEndpoint) -> dict[str, Any]:
        card = {"id": name, "object": "model", "created": int(self._started_s), "owned_by": "spanloop"}
        length = endpoint.facts.max_model_len
        return card if length is None else {**card, "max_model_len": length}

    async def _metrics_text(self, request: Request) -> Response:
        self._authenticator.check(request, Scope.READ)
        status, spool = self.lifecycle.status, self.recorder.stats
        gauges = {
            "engine_serving": float(status.state is EngineState.SERVING),
            "engine_restarts": status.restarts,
            "engine_start_duration_seconds": status.start_duration_s,
            "running_requests": self.admission.running,
            "held_requests": self.admission.waiting,
            "body_bytes": self._bodies.used_bytes,
            "engines_serving": len(self.admission.endpoints),
            "conversation_bytes": self.continuer.size_bytes,
            "spool_bytes": spool.bytes,
            "spool_records": spool.records,
            "spool_oldest_age_seconds": spool.oldest_age_s,
            "last_insert_timestamp_seconds": self.recorder.last_insert_s,
        }
        for name, value in gauges.items():
            self.metrics.set(name, value)
        return PlainTextResponse(self.metrics.render(), media_type=MEDIA_TYPE)

    async def _answer_defect(self, request: Request, error: Exception) -> Response:
        """Answer an exception that no other handler expects; starlette raises it again, and the server logs it."""
        self.metrics.count("defects_total")
        return error_response(request.url.path, DefectError(error))

    def _make_candidate(self, canary: Canary) -> Candidate:
        champion = self.lifecycle.status_of(canary.candidate.name).deployment
        engine, is_shared = self._factory.candidate_engine(canary.upstream, canary.candidate, champion)
        weights = FixedWeights(self._data_dir, canary.candidate)
        return Candidate(
            canary,
            engine,
            self.admission,
            self._settings,
            data_dir=self._data_dir,
            weights=weights,
            is_shared=is_shared,
            on_end=lambda: self._factory.release(engine),
        )

    def _read_ids(self, response_ids: list[str]) -> dict[str, list[int]]:
        with self._connect() as store:
            rows = store.query("gateway_generations", response_ids=response_ids).iter_rows()
            return {generation_id: [*prompt, *response] for generation_id, prompt, response in rows}

    def _connect(self) -> Store:
        return connect(self._data_dir)


def _key_for(url: str) -> str:
    key = read_setting(KEY_ENV)
    if not key:
        raise ConfigurationError(
            f"This gateway follows {url}, and {KEY_ENV} is not set.",
            next_step=f"Make a key of the scope train (spanloop keys create NAME --scope train); set {KEY_ENV}, or "
            f"{KEY_ENV}_FILE to a file that holds it.",
        )
    return key


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log a failure of a task that otherwise runs until it is cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error(
            "the %s failed; it runs again after a restart, and captures stay until then",
            task.get_name(),
            exc_info=error,
        )


async def _answer_api_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error_response(request.url.path, error)


async def _answer_routing_error(request: Request, error: Exception) -> Response:
    """Answer a path (404) or method (405) that does not exist in OpenAI's format, and name those that exist."""
    if not isinstance(error, HTTPException):
        raise error
    call = f"{request.method} {request.url.path}"
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        message, code = f"There is no {call}; the methods of this path: {allowed}.", "method_not_allowed"
        return ApiError(error.status_code, message, code=code).response(Allow=allowed)
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    existing = ", ".join(map(_show, routes))
    message = f"There is no {call}; the routes of this gateway: {existing}."
    return ApiError(error.status_code, message, code="unknown_route").response()


def _show(route: Route) -> str:
    """Return a route's methods and path, without the types of its parameters."""
    methods = "|".join(sorted((route.methods or set()) - {"HEAD"}))
    return f"{methods} {route.path.replace(':path}', '}')}"
