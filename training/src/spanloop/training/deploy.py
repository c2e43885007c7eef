"""Serve a registered version: tell the running gateway, and record the deployment once it has confirmed.

The invariant: the registry's newest deployment is one that the gateway answered for. A refused one leaves no record.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from spanloop.semconv.errors import JobError, ServiceError
from spanloop.training.control.paths import ControlPaths, HasPath
from spanloop.training.gateway_admin import GatewayAdmin, said
from spanloop.training.registry import ModelVersion, Registry

DEPLOY_TIMEOUT_S: Final = 900.0
"""An engine that starts afresh on a CPU with a large model takes minutes."""


def pause_holder(job_id: str) -> str:
    """The name under which a job pauses serving, and deploys in spite of it."""
    return f"job {job_id}"


def deploy(
    data_dir: str | os.PathLike[str] | HasPath,
    reference: str,
    *,
    job_id: str | None = None,
    token: int | None = None,
    timeout_s: float = DEPLOY_TIMEOUT_S,
    serving_path: Callable[[ModelVersion], Path] | None = None,
) -> ModelVersion:
    """Have the gateway answer with ``reference`` from now on; returns when it does.

    Args:
        data_dir: A ``DataDir`` or the path of one.
        reference: ``name@version``, or ``name`` for its newest version.
        job_id: The job that deploys, for the record.
        token: The fencing token of the process that runs the job; with it, a stale runner deploys nothing.
        timeout_s: How long the gateway may take.
        serving_path: Gives the folder to serve; by default a copy with untied embeddings where the version needs one.

    Raises:
        JobError: There is no such version, or its folder is gone.
        NotRunningError: No gateway runs on this data directory.
        ConfigurationError: The gateway's admin token is missing or refused.
        ServiceError: The gateway could not serve it.
        LeaseLostError: ``token`` is stale.
    """
    paths = ControlPaths.of(data_dir)
    registry = Registry(paths.root)
    registry.check_lease(job_id, token)
    model = registry.get(reference)
    if not model.path.is_dir():
        raise JobError(
            f"The folder of {model.reference} is gone: {model.path}.",
            next_step="Restore it from a backup, or deploy another version of: spanloop models list",
        )
    gateway = GatewayAdmin.find(paths.root)
    folder = (serving_path or _untied_copy)(model)
    body = {"name": model.name, "version": model.version, "path": str(folder)}
    if job_id is not None:
        body["holder"] = pause_holder(job_id)
    _check(_post(gateway, body, timeout_s=timeout_s), model.reference)
    registry.record_deployment(model.reference, job_id=job_id, token=token)
    return model


def _untied_copy(model: ModelVersion) -> Path:
    # Needs torch and safetensors for a model with tied embeddings: imported only by those who deploy.
    from spanloop.training.serving_copy import serving_path  # noqa: PLC0415

    return serving_path(model)


def _post(gateway: GatewayAdmin, body: dict[str, str], *, timeout_s: float) -> httpx.Response:
    try:
        return gateway.post("deploy", body, timeout_s=timeout_s)
    except httpx.TimeoutException as error:
        raise ServiceError(
            f"The gateway did not serve {body['name']}@{body['version']} within {timeout_s:.0f} s.",
            next_step=f"See what its engine does in {gateway.root / 'logs' / 'gateway.log'}.",
        ) from error
    except httpx.HTTPError as error:
        raise ServiceError(
            f"The gateway at {gateway.url} broke off while it deployed {body['name']}@{body['version']}: {error}.",
            next_step=f"See {gateway.root / 'logs' / 'gateway.log'}.",
        ) from error


def _check(answer: httpx.Response, reference: str) -> None:
    if answer.is_success:
        return
    raise ServiceError(
        f"The gateway did not deploy {reference}: got {answer.status_code}, expected 200: {said(answer)}",
        next_step="spanloop status shows what it serves now; logs/gateway.log says why.",
    )
