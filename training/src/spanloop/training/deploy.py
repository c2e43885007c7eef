"""Serve a registered version: tell the running gateway, and record the deployment once it has confirmed.

The invariant: the registry's newest deployment is one that the gateway answered for. A refused one leaves no record.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx

from spanloop.semconv.environment import read_run_file
from spanloop.semconv.errors import ConfigurationError, JobError, NotRunningError, ServiceError
from spanloop.training.control.paths import ControlPaths, HasPath
from spanloop.training.registry import ModelVersion, Registry

DEPLOY_TIMEOUT_S: Final = 900.0
"""An engine that starts afresh on a CPU with a large model takes minutes."""

CONNECT_TIMEOUT_S: Final = 5.0
SHOWN_ANSWER_CHARACTERS: Final = 500


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
    gateway = read_run_file(paths.root, "gateway")
    if gateway is None:
        raise _not_running(paths.root)
    admin_token = _admin_token(paths.root)
    folder = (serving_path or _untied_copy)(model)
    body = {"name": model.name, "version": model.version, "path": str(folder)}
    answer = _post(f"{gateway.url.rstrip('/')}/admin/deploy", body, admin_token, timeout_s=timeout_s, root=paths.root)
    _check(answer, model.reference)
    registry.record_deployment(model.reference, job_id=job_id, token=token)
    return model


def _untied_copy(model: ModelVersion) -> Path:
    # Needs torch and safetensors for a model with tied embeddings: imported only by those who deploy.
    from spanloop.training.serving_copy import serving_path  # noqa: PLC0415

    return serving_path(model)


def _admin_token(root: Path) -> str:
    file = root / "gateway" / "admin.token"
    try:
        return file.read_text().strip()
    except OSError as error:
        raise ConfigurationError(
            f"The gateway's admin token cannot be read: {error}.",
            next_step=f"Run as the user who started the gateway, or restart it: spanloop up --data-dir {root}",
        ) from error


def _post(url: str, body: dict[str, str], admin_token: str, *, timeout_s: float, root: Path) -> httpx.Response:
    timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
    try:
        # trust_env off: a proxy of the environment must not get between us and our own gateway.
        with httpx.Client(timeout=timeout, trust_env=False) as client:
            return client.post(url, json=body, headers={"Authorization": f"Bearer {admin_token}"})
    except httpx.ConnectError as error:
        raise _not_running(root) from error
    except httpx.TimeoutException as error:
        raise ServiceError(
            f"The gateway did not serve {body['name']}@{body['version']} within {timeout_s:.0f} s.",
            next_step=f"See what its engine does in {root / 'logs' / 'gateway.log'}.",
        ) from error
    except httpx.HTTPError as error:
        raise ServiceError(
            f"The gateway at {url} broke off while it deployed {body['name']}@{body['version']}: {error}.",
            next_step=f"See {root / 'logs' / 'gateway.log'}.",
        ) from error


def _check(answer: httpx.Response, reference: str) -> None:
    if answer.is_success:
        return
    said = answer.text[:SHOWN_ANSWER_CHARACTERS]
    if answer.status_code in {401, 403}:
        raise ConfigurationError(
            f"The gateway refused the admin token ({answer.status_code}): {said}",
            next_step="Restart the gateway; it writes a token that fits into gateway/admin.token.",
        )
    raise ServiceError(
        f"The gateway did not deploy {reference}: got {answer.status_code}, expected 200: {said}",
        next_step="spanloop status shows what it serves now; logs/gateway.log says why.",
    )


def _not_running(root: Path) -> NotRunningError:
    return NotRunningError(
        f"No gateway runs on the data directory {root}.",
        next_step=f"spanloop up --data-dir {root}",
    )
