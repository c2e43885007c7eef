"""Whether the gateway is well, and whether it is ready to answer."""

from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .canary.canaries import Canaries
from .capture.recorder import Recorder
from .continuation.continuer import Continuer
from .drain import Drain
from .engine.admission import AdmissionControl
from .engine.gate import EngineGate
from .engine.status import EngineState, EngineStatus
from .following.follower import Follower
from .following.leader import Leader
from .pauses import Pauses
from .served_models.engine_group import EngineGroup

_DEGRADED_STATES: Final = frozenset({EngineState.RESTARTING, EngineState.FAILED})


class Parts(Protocol):
    """The parts of a gateway that its state is made of."""

    admission: AdmissionControl
    canaries: Canaries
    continuer: Continuer
    drain: Drain
    follower: Follower
    leader: Leader
    lifecycle: EngineGroup
    pauses: Pauses
    recorder: Recorder


class GatewayHealth:
    """The open routes about the state of a gateway.

    Args:
        gateway: The gateway.
    """

    def __init__(self, gateway: Parts) -> None:
        self._gateway = gateway
        self._version = version("spanloop")

    async def report(self, _request: Request) -> Response:
        """Answer ``GET /healthz``: 200 as long as the process answers, with what is wrong."""
        gateway = self._gateway
        status, spool = gateway.lifecycle.status, gateway.recorder.stats
        deployment, candidate = status.deployment, gateway.canaries.candidate
        engines = list(zip(gateway.lifecycle.statuses, gateway.admission.gates, strict=True))
        problems = (gateway.recorder.last_error, gateway.follower.error)
        is_degraded = any(each.state in _DEGRADED_STATES for each, _ in engines) or any(problems)
        return JSONResponse(
            {
                "status": "draining" if gateway.drain.is_active else "degraded" if is_degraded else "ok",
                "spanloop": self._version,
                "engine": status.state.value,
                "model": None if deployment is None else deployment.name,
                "version": None if deployment is None else deployment.version,
                "canary": None if candidate is None else candidate.canary.candidate.label,
                "error": status.error or gateway.follower.error,
                "follows": "" if gateway.leader.is_this else gateway.leader.url,
                "engines": [_engine_document(*engine) for engine in engines],
                "continuation": self._continuation_state(),
                "paused_by": gateway.pauses.holders,
                "restarts": status.restarts,
                "start_duration_s": round(status.start_duration_s, 3),
                "running_requests": gateway.admission.running,
                "held_requests": gateway.admission.waiting,
                "captures": {
                    "waiting_records": spool.records,
                    "waiting_bytes": spool.bytes,
                    "oldest_age_s": round(spool.oldest_age_s, 1),
                    "last_insert": gateway.recorder.last_insert_s,
                    "error": gateway.recorder.last_error,
                },
            }
        )

    async def readiness(self, _request: Request) -> Response:
        """Answer ``GET /readyz``: 200 while a model is served, else 503, so that a balancer leaves the gateway out."""
        gateway = self._gateway
        is_ready = bool(gateway.admission.endpoints) and not gateway.drain.is_active
        state = gateway.lifecycle.status.state.value
        return JSONResponse({"engine": state}, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    def _continuation_state(self) -> str:
        """Return ``exact``, or why conversations are tokenised again; empty while nothing is served."""
        gateway = self._gateway
        endpoint = gateway.admission.endpoint
        if endpoint is None:
            return ""
        if gateway.continuer.is_exact(endpoint):
            limits = endpoint.facts.prompt_ids.limits
            return f"tokenised again in part: {limits}" if limits else "exact"
        return f"tokenised again: {endpoint.facts.no_exact_ids or 'conversation_bytes is 0'}"


def _engine_document(status: EngineStatus, gate: EngineGate) -> dict[str, Any]:
    served = status.deployment
    return {
        "state": status.state.value,
        "model": None if served is None else served.label,
        "running_requests": gate.running,
        "restarts": status.restarts,
        "error": status.error,
    }
