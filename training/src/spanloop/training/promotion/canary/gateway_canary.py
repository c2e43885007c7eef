"""Start, look up and end the canary of the running gateway.

Invariant: the gateway alone knows which canary runs; this module only asks it.
"""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

import httpx

from spanloop.foundation.errors import ConfigurationError, NotRunningError, ServiceError
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.deploy import (
    DEPLOY_TIMEOUT_S,
    GatewayAdmin,
    require_folder,
    response_text,
    served_weights,
)

_STOP_TIMEOUT_S: Final = 60.0


class RunningCanary(NamedTuple):
    """A canary as the gateway tells it."""

    id: str
    candidate: str
    """``name@version``."""
    champion: str
    share: float
    is_shadow: bool
    started_at: datetime
    engine: str
    """State of the candidate's engine; empty for a canary that has ended."""
    error: str

    @classmethod
    def parse(cls, document: Any, *, engine: str = "", error: str = "") -> Self:
        """Read the gateway's JSON.

        Raises:
            KeyError: A field is missing.
            TypeError: It is no object.
        """
        return cls(
            id=str(document["id"]),
            candidate=str(document["candidate"]),
            champion=str(document["champion"]),
            share=float(document["share"]),
            is_shadow=document["mode"] == "shadow",
            started_at=datetime.fromtimestamp(float(document["started_s"]), UTC),
            engine=engine,
            error=error,
        )


class CanaryRequest(NamedTuple):
    """What a user asks for."""

    reference: str
    """``name@version``, or ``name`` for the newest version."""
    share: float
    """Of the sessions, or of the calls with ``is_shadow``; above 0, at most 1."""
    is_shadow: bool = False
    upstream: str = ""
    """URL of a vLLM server that serves the candidate; empty lets the gateway start one."""


def running_canary(data_dir: str | os.PathLike[str] | HasPath) -> RunningCanary | None:
    """Return the canary that runs; None without one, or without a gateway.

    Raises:
        ConfigurationError: The gateway's admin token is missing or invalid.
        ServiceError: The gateway does not answer.
    """
    try:
        gateway = GatewayAdmin.find(ControlPaths.of(data_dir).root)
        document = _document(gateway, lambda: gateway.get("canary"), "tell its canary")
    except NotRunningError:
        return None
    return _parsed(document, "canary")


def served_version(data_dir: str | os.PathLike[str] | HasPath, name: str = "") -> str:
    """Return the ``name@version`` that the gateway serves of a model, else of its first model; empty when it has none.

    A deployment of the model replaces this version. It raises as `start_canary`.
    """
    gateway = GatewayAdmin.find(ControlPaths.of(data_dir).root)
    document = _document(gateway, lambda: gateway.get("status"), "tell its status")
    served: list[str] = document["served"]
    return next((each for each in served if each.partition("@")[0] == name), next(iter(served), ""))


def start_canary(
    data_dir: str | os.PathLike[str] | HasPath,
    request: CanaryRequest,
    *,
    serving_path: Callable[[ModelVersion], Path] | None = None,
) -> RunningCanary:
    """Let a candidate answer a share of the sessions, or get a copy of a share of the calls; return when it serves.

    Args:
        data_dir: The data directory, or its path.
        request: What to start.
        serving_path: As in `spanloop.training.promotion.deploy.deploy`.

    Raises:
        ConfigurationError: The share is out of its range, another canary runs, or nothing is served to compare with.
        JobError: There is no such version, or its folder was removed.
        NotRunningError: No gateway runs on this data directory.
        ServiceError: The gateway could not serve the candidate; the champion serves as before.
    """
    if not 0 < request.share <= 1:
        raise ConfigurationError(
            f"The share of a canary must be above 0 and at most 1, got {request.share:g}.",
            next_step="0.1 gives the candidate a tenth of the sessions: --share 0.1",
        )
    registry = Registry(data_dir)
    model = registry.get(request.reference)
    require_folder(model)
    gateway = GatewayAdmin.find(ControlPaths.of(data_dir).root)
    body: dict[str, object] = {
        **served_weights(registry, model, serving_path),
        "share": request.share,
        "is_shadow": request.is_shadow,
        "upstream": request.upstream,
    }
    started = _parsed(
        _document(gateway, lambda: gateway.post("canary", body, timeout_s=DEPLOY_TIMEOUT_S), "start the canary"),
        "canary",
    )
    if started is None:
        raise ServiceError(f"The canary of {model.reference} ended at once.", next_step="See logs/gateway.log.")
    return started


def stop_canary(data_dir: str | os.PathLike[str] | HasPath, *, identity: str = "") -> RunningCanary | None:
    """End the canary; return it, None when none ran.

    Args:
        data_dir: The data directory, or its path.
        identity: End only this canary; empty ends any.

    Raises:
        NotRunningError: No gateway runs on this data directory.
        ServiceError: The gateway did not end it.
    """
    gateway = GatewayAdmin.find(ControlPaths.of(data_dir).root)
    body = {"id": identity} if identity else {}

    def stop() -> httpx.Response:
        return gateway.post("canary/stop", body, timeout_s=_STOP_TIMEOUT_S)

    return _parsed(_document(gateway, stop, "end the canary"), "ended")


def _parsed(document: dict[str, Any], key: str) -> RunningCanary | None:
    try:
        if document[key] is None:
            return None
        return RunningCanary.parse(
            document[key], engine=str(document.get("engine", "")), error=str(document.get("error", ""))
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ServiceError(
            f"The gateway's answer has no {key}: {error!r}.", next_step="Restart it: spanloop up"
        ) from error


def _document(gateway: GatewayAdmin, send: Callable[[], httpx.Response], doing: str) -> dict[str, Any]:
    try:
        response = send()
    except httpx.HTTPError as error:
        raise ServiceError(
            f"The gateway at {gateway.url} did not {doing}: {type(error).__name__}: {error}.",
            next_step=f"See {gateway.log}.",
        ) from error
    if response.is_success:
        return cast("dict[str, Any]", response.json())
    message = _message(response)
    kind = ConfigurationError if response.status_code == HTTPStatus.BAD_REQUEST else ServiceError
    raise kind(f"The gateway did not {doing}: {message}", next_step="See what it serves: spanloop status")


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code}: {response_text(response)}"
