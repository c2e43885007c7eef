"""The model that a run's attempts use, as the gateway serves it.

Invariant: an attempt counts only while the gateway serves the run's model. One that ended badly while it did not was
interrupted, and is made again.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import httpx

from spanloop.foundation.errors import NotRunningError, ServiceError
from spanloop.foundation.keys.local_tokens import serve_token
from spanloop.foundation.keys.service_keys import bearer, service_key, trusted_certificates
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import ServiceAddress

_TIMEOUT_S: Final = 10.0
_FRESH_S: Final = 1.0
_POLL_S: Final = 1.0
WAIT_S: Final = 600.0
"""Longest wait for a gateway that restarts its engine or is paused by a training job."""


class Served(NamedTuple):
    """What the gateway serves at one time."""

    names: tuple[str, ...]
    """``name@version`` and ``name`` of each model."""
    restarts: int
    """Of its engine, since the gateway's start."""


def gateway_key(data_dir: DataDir, gateway: ServiceAddress) -> str:
    """Return the secret for the chat routes of a gateway; it raises as `service_key`."""
    return service_key(gateway, lambda: serve_token(data_dir))


def served_models(data_dir: DataDir, gateway: ServiceAddress) -> Served | str:
    """Ask a gateway; return why it does not answer otherwise."""
    url, headers = gateway.url, bearer(gateway_key(data_dir, gateway))
    try:
        # trust_env off: a proxy of the environment must not intercept requests to the gateway.
        with httpx.Client(
            timeout=_TIMEOUT_S, trust_env=False, headers=headers, verify=trusted_certificates(url)
        ) as client:
            models = client.get(f"{url}/v1/models").raise_for_status().json()
            health = client.get(f"{url}/healthz").raise_for_status().json()
        names = tuple(str(model["id"]) for model in models["data"])
        return Served(names, int(health["restarts"]))
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def resolve_model(data_dir: DataDir, model: str) -> tuple[ServiceAddress, str]:
    """Return the gateway, and the served ``name@version`` that ``model`` stands for.

    Args:
        data_dir: Of this process, and of the gateway unless a setting names another one.
        model: ``name@version``, ``name`` for the version that is served, or empty for whatever is served.

    Raises:
        NotRunningError: No gateway runs.
        ServiceError: It serves nothing, or another model.
    """
    gateway = data_dir.find("gateway")
    if gateway is None:
        raise NotRunningError(
            f"No gateway runs on the data directory {data_dir.path}.",
            next_step="spanloop up; or name another endpoint with --base-url.",
        )
    served = served_models(data_dir, gateway)
    if isinstance(served, str):
        raise ServiceError(
            f"The gateway at {gateway.url} does not say what it serves: {served}.",
            next_step="See spanloop status.",
        )
    versions = [name for name in served.names if "@" in name]
    matches = [name for name in versions if not model or model in {name, name.partition("@")[0]}]
    if not matches:
        raise ServiceError(
            f"The gateway serves {', '.join(versions) or 'no model'}, not {model or 'a model'}.",
            next_step=f"spanloop models deploy {model or 'NAME@VERSION'}",
        )
    return gateway, matches[0]


class ServedModel:
    """Watches that the gateway serves one model.

    Args:
        data_dir: Of the gateway, which may move to another URL when it restarts.
        model: The ``name@version``.
    """

    def __init__(self, data_dir: DataDir, model: str) -> None:
        self._data_dir: Final = data_dir
        self._model: Final = model
        self._lock: Final = threading.Lock()
        self._asked_s = 0.0
        self._served: Served | str = ""

    def wait(self, should_stop: Callable[[], bool], on_wait: Callable[[str], None]) -> Served | None:
        """Wait until the model is served; None when ``should_stop`` said so first.

        Raises:
            ServiceError: It is not served after ten minutes, or another one is.
        """
        deadline_s = time.monotonic() + WAIT_S
        is_told = False
        while not should_stop():
            served = self._ask()
            if isinstance(served, Served) and self._model in served.names:
                return served
            if isinstance(served, Served) and served.names:
                raise ServiceError(
                    f"The gateway now serves {', '.join(served.names)}, and the run is of {self._model}.",
                    next_step=f"spanloop models deploy {self._model}; then the same command continues the run.",
                )
            why = served if isinstance(served, str) else "no model is served"
            if time.monotonic() > deadline_s:
                raise ServiceError(
                    f"The gateway has not served {self._model} for {WAIT_S:.0f} s: {why}.",
                    next_step="See spanloop status; the same command continues the run.",
                )
            if not is_told:
                on_wait(f"waiting for the gateway to serve {self._model} ({why})")
                is_told = True
            time.sleep(_POLL_S)
        return None

    def is_unchanged(self, since: Served) -> bool:
        """Whether the gateway still serves what it served at ``since``, without a restart of its engine."""
        with self._lock:
            self._asked_s = 0.0
        return self._ask() == since

    def _ask(self) -> Served | str:
        with self._lock:
            if time.monotonic() - self._asked_s > _FRESH_S:
                gateway = self._data_dir.find("gateway")
                self._served = "it does not run" if gateway is None else served_models(self._data_dir, gateway)
                self._asked_s = time.monotonic()
            return self._served
