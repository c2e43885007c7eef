"""Deploy a registered model version to the running gateway, and record the deployment after its confirmation.

Invariant: the gateway confirmed every recorded deployment. A failed deployment is not recorded.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Final, NamedTuple, Self

import httpx

from spanloop.foundation.errors import ConfigurationError, JobError, NotRunningError, ServiceError
from spanloop.foundation.keys.service_keys import bearer, service_key, trusted_certificates
from spanloop.semconv.environment import GATEWAY_URL_ENV, KEY_ENV, find_service
from spanloop.training.jobs.leases import JobLeaseLostError
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.models.adapter_versions import weights_version
from spanloop.training.models.registry import SERVED_AS_IT_IS, ModelVersion, Registry

STALE_TOKEN: Final = "stale_token"  # noqa: S105 - an error code
"""The gateway's code for a fencing token that is older than one of the same job."""
CANARY_RUNNING: Final = "canary_running"
"""Its code while a canary compares two other versions, which ends by itself."""
CONNECT_TIMEOUT_S: Final = 5.0
GET_TIMEOUT_S: Final = 10.0
SHOWN_RESPONSE_CHARACTERS: Final = 500


class GatewayAdmin(NamedTuple):
    """Client of one running gateway."""

    url: str
    root: Path
    """The data directory of this process; the gateway's own if it runs on this machine."""
    token: str
    is_configured: bool
    """Whether a setting names the gateway, which may run on another host."""

    @classmethod
    def find(cls, root: Path) -> Self:
        """Return the gateway that a setting names, else the one that runs on the data directory ``root``.

        Raises:
            NotRunningError: No gateway runs.
            ConfigurationError: Its address, or the key or admin token for it, cannot be used.
        """
        address = find_service(root, "gateway")
        if address is None:
            raise not_running(root)
        token = service_key(address, lambda: _admin_token(root))
        if not token:
            raise ConfigurationError(
                f"The gateway at {address.url} needs a key, and {KEY_ENV} is not set.",
                next_step=f"Make one of the scope train (spanloop keys create NAME --scope train); set {KEY_ENV}, or "
                f"{KEY_ENV}_FILE to a file that holds it.",
            )
        return cls(address.url, root, token, address.is_configured)

    @property
    def log(self) -> str:
        """Where the gateway's log is, for error messages."""
        return "logs/gateway.log on its host" if self.is_configured else str(self.root / "logs" / "gateway.log")

    def post(self, path: str, body: Mapping[str, object], *, timeout_s: float) -> httpx.Response:
        """Return the response to ``POST /admin/<path>``, with any status except 401 and 403.

        Raises:
            NotRunningError: The gateway no longer listens.
            ConfigurationError: The gateway rejected the token.
            httpx.HTTPError: The request timed out or the connection broke.
        """
        return self._send("POST", path, dict(body), timeout_s)

    def get(self, path: str) -> httpx.Response:
        """Return the response to ``GET /admin/<path>``; it raises as `post`."""
        return self._send("GET", path, None, GET_TIMEOUT_S)

    def _send(self, method: str, path: str, body: Mapping[str, object] | None, timeout_s: float) -> httpx.Response:
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            # trust_env off: a proxy of the environment must not intercept requests to the gateway.
            with httpx.Client(timeout=timeout, trust_env=False, verify=trusted_certificates(self.url)) as client:
                response = client.request(method, f"{self.url}/admin/{path}", json=body, headers=bearer(self.token))
        except httpx.ConnectError as error:
            raise (unreachable(self.url, error) if self.is_configured else not_running(self.root)) from error
        if response.status_code in {401, 403}:
            raise self._rejected(response)
        return response

    def _rejected(self, response: httpx.Response) -> ConfigurationError:
        if self.is_configured:
            return ConfigurationError(
                f"The gateway at {self.url} rejected the key ({response.status_code}): {response_text(response)}",
                next_step=f"Set {KEY_ENV} to a key of the scope train that the gateway knows (spanloop keys create).",
            )
        return ConfigurationError(
            f"The gateway rejected the admin token ({response.status_code}): {response_text(response)}",
            next_step="Restart the gateway; it writes a valid token into gateway/admin.token.",
        )


def _admin_token(root: Path) -> str:
    try:
        return (root / "gateway" / "admin.token").read_text().strip()
    except OSError as error:
        raise ConfigurationError(
            f"The gateway's admin token cannot be read: {error}.",
            next_step=f"Run as the user who started the gateway, or restart it: spanloop up --data-dir {root}",
        ) from error


def response_text(response: httpx.Response) -> str:
    """Return the response's text, shortened for an error message."""
    return response.text[:SHOWN_RESPONSE_CHARACTERS]


def not_running(root: Path) -> NotRunningError:
    """Return the error for a data directory without a running gateway."""
    return NotRunningError(f"No gateway runs on the data directory {root}.", next_step=f"spanloop up --data-dir {root}")


def unreachable(url: str, error: httpx.HTTPError) -> NotRunningError:
    """Return the error for a configured gateway that does not answer."""
    return NotRunningError(
        f"The gateway at {url}, which {GATEWAY_URL_ENV} names, cannot be reached: {error}.",
        next_step=f"Start it on its host (spanloop serve gateway), or correct {GATEWAY_URL_ENV}.",
    )


DEPLOY_TIMEOUT_S: Final = 900.0
"""An engine that starts with a large model on a CPU takes minutes."""


def pause_holder(job_id: str) -> str:
    """Return the holder name under which a job pauses serving; its own deployments ignore the pause."""
    return f"job {job_id}"


def deploy(
    data_dir: str | os.PathLike[str] | HasPath,
    reference: str,
    *,
    job_id: str | None = None,
    token: int | None = None,
    timeout_s: float = DEPLOY_TIMEOUT_S,
    serving_path: Callable[[ModelVersion], Path] | None = None,
    is_beside: bool = False,
) -> ModelVersion:
    """Deploy ``reference``; return when the gateway serves it.

    Args:
        data_dir: The data directory, or its path.
        reference: ``name@version``, or ``name`` for its newest version.
        job_id: The job that deploys; stored with the deployment.
        token: The fencing token of the runner; a stale token is rejected.
        timeout_s: Timeout of the gateway's response.
        serving_path: Returns the folder to serve, of an adapter's base; default: a copy with untied embeddings if the
            version needs one.
        is_beside: Whether a model that is not served yet leaves the one that is served as it is: it gets an engine of
            its own, or is an adapter on the engines of its base.

    Raises:
        JobError: There is no such version, or its folder was removed.
        NotRunningError: No gateway runs on this data directory.
        ConfigurationError: The key for the gateway, or its admin token, is missing or invalid.
        ServiceError: The gateway could not serve it.
        JobLeaseLostError: ``token`` is stale, as the control database or the gateway says.
    """
    paths = ControlPaths.of(data_dir)
    registry = Registry(paths.root)
    registry.check_lease(job_id, token)
    model = registry.get(reference)
    require_folder(model)
    gateway = GatewayAdmin.find(paths.root)
    body: dict[str, str | int] = {**served_weights(registry, model, serving_path)}
    if is_beside:
        body["beside"] = True
    if job_id is not None:
        body["holder"] = pause_holder(job_id)
        if token is not None:
            body["token"] = token
        # again, because the folder's copy may take minutes
        registry.check_lease(job_id, token)
    _check(_post(gateway, body, timeout_s=timeout_s), model.reference)
    registry.record_deployment(model.reference, job_id=job_id, token=token)
    return model


def stop_model(data_dir: str | os.PathLike[str] | HasPath, model: str) -> None:
    """Stop a model that the gateway serves beside another one.

    Args:
        data_dir: The data directory, or its path.
        model: Name of the model, without a version.

    Raises:
        NotRunningError: No gateway runs on this data directory.
        ConfigurationError: The key or token is invalid, or no such model is served beside another one.
        ServiceError: The gateway could not stop it.
    """
    _command(data_dir, "stop", {"model": model}, f"stop {model}", timeout_s=DEPLOY_TIMEOUT_S)


def name_model(data_dir: str | os.PathLike[str] | HasPath, model: str, names: Sequence[str]) -> None:
    """Let the gateway answer to ``names`` with whatever version of ``model`` it serves, instead of its names before.

    Args:
        data_dir: The data directory, or its path.
        model: Name of the model, without a version.
        names: Names by which apps call it.

    Raises:
        NotRunningError: No gateway runs on this data directory.
        ConfigurationError: The key or token is invalid, or a name cannot be one.
        ServiceError: The gateway could not store them.
    """
    body = {"model": model, "names": list(names)}
    _command(data_dir, "names", body, f"take the names of {model}", timeout_s=GET_TIMEOUT_S)


def _command(
    data_dir: str | os.PathLike[str] | HasPath, path: str, body: Mapping[str, object], doing: str, *, timeout_s: float
) -> None:
    gateway = GatewayAdmin.find(ControlPaths.of(data_dir).root)
    try:
        response = gateway.post(path, body, timeout_s=timeout_s)
    except httpx.HTTPError as error:
        raise ServiceError(f"The gateway did not answer: {error!r}.", next_step=f"Read {gateway.log}") from error
    if response.status_code == HTTPStatus.BAD_REQUEST:
        raise ConfigurationError(f"The gateway did not {doing}: {response_text(response)}")
    if response.status_code != HTTPStatus.OK:
        raise ServiceError(
            f"The gateway did not {doing} ({response.status_code}): {response_text(response)}",
            next_step=f"Read {gateway.log}",
        )


def require_folder(model: ModelVersion) -> None:
    """Check that the folder of a version that is no object is there; JobError: it is not."""
    if model.object_name is None and not model.path.is_dir():
        raise JobError(
            f"The folder of {model.reference} does not exist: {model.path}.",
            next_step="Restore it from a backup, or deploy another version: spanloop models list",
        )


def served_weights(
    registry: Registry, model: ModelVersion, serving_path: Callable[[ModelVersion], Path] | None = None
) -> dict[str, str]:
    """Return what the gateway needs to serve a version: ``name``, ``version``, ``path``, ``adapter``, ``tokenizer``.

    Paths are relative to the shared folder, which a gateway on another host may have mounted elsewhere, or names in
    object storage.

    Args:
        registry: Holds the version.
        model: The version; its folder exists.
        serving_path: As in `deploy`.
    """
    location = _serving_location(registry, weights_version(registry, model), serving_path or _untied_copy)
    weights = {"name": model.name, "version": model.version, "path": location}
    if model.adapter_base is not None:
        weights["adapter"] = model.object_name or registry.location(model.path)
    if (tokenizer := registry.tokenizer_fingerprint(model.reference)) is not None:
        weights["tokenizer"] = tokenizer
    return weights


def _serving_location(registry: Registry, owner: ModelVersion, serving_path: Callable[[ModelVersion], Path]) -> str:
    name = owner.object_name
    if name is None:
        return registry.location(serving_path(owner))
    if owner.metadata.get(SERVED_AS_IT_IS) is True:
        return name
    return registry.objects.serving_object(name, lambda folder: serving_path(replace(owner, path=folder)))


def _untied_copy(model: ModelVersion) -> Path:
    # It reads weights with numpy: imported only for a deployment.
    from spanloop.training.models.serving_copy import serving_path  # noqa: PLC0415

    return serving_path(model)


def _post(gateway: GatewayAdmin, body: dict[str, str | int], *, timeout_s: float) -> httpx.Response:
    try:
        return gateway.post("deploy", body, timeout_s=timeout_s)
    except httpx.TimeoutException as error:
        raise ServiceError(
            f"The gateway did not serve {body['name']}@{body['version']} within {timeout_s:.0f} s.",
            next_step=f"Read the engine's log: {gateway.log}",
        ) from error
    except httpx.HTTPError as error:
        raise ServiceError(
            f"The gateway at {gateway.url} disconnected; {body['name']}@{body['version']} is not deployed: {error}.",
            next_step=f"See {gateway.log}.",
            is_transient=True,
        ) from error


def _check(response: httpx.Response, reference: str) -> None:
    if response.is_success:
        return
    if response.status_code == HTTPStatus.CONFLICT and STALE_TOKEN in response.text:
        raise JobLeaseLostError(
            f"The gateway did not deploy {reference}: {response_text(response)}",
            next_step="Stop this process; another one runs the job.",
        )
    raise ServiceError(
        f"The gateway did not deploy {reference}: got {response.status_code}, expected 200: {response_text(response)}",
        next_step="See what it serves: spanloop status; see the cause in logs/gateway.log.",
        is_transient=response.status_code == HTTPStatus.CONFLICT and CANARY_RUNNING in response.text,
    )
