"""What the loop reads from running services: whether they are there, what waits to be stored, tokens."""

import re
import time
from collections.abc import Callable
from typing import Any, Final

import httpx

from spanloop.foundation.errors import NotRunningError, ServiceError
from spanloop.foundation.keys.service_keys import trusted_certificates
from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.service_states import may_run_elsewhere

_TIMEOUT_S: Final = 5.0
_SETTLE_S: Final = 180.0
_POLL_S: Final = 0.3
_TOKENS: Final = re.compile(r"^spanloop_gateway_tokens_total(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


def require_services(data_dir: DataDir) -> None:
    """Check that collector, gateway and scheduler run.

    Raises:
        NotRunningError: One does not.
    """
    missing = [name for name in ("collector", "gateway") if data_dir.find(name) is None]
    if data_dir.running("scheduler") is None and not may_run_elsewhere(data_dir.path, "scheduler"):
        missing.append("scheduler")
    if missing:
        raise NotRunningError(
            f"The loop needs a running {', '.join(missing)} on the data directory {data_dir.path}.",
            next_step=f"In another terminal: spanloop up --data-dir {data_dir.path}",
        )


def settle(data_dir: DataDir, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Wait until every acknowledged span and capture is stored.

    Raises:
        ServiceError: Some are not after three minutes.
    """
    deadline_s = time.monotonic() + _SETTLE_S
    while not should_stop():
        waiting = [
            name for name, key in (("collector", "spool"), ("gateway", "captures")) if _waits(data_dir, name, key)
        ]
        if not waiting:
            return
        if time.monotonic() > deadline_s:
            raise ServiceError(
                f"Records of {' and '.join(waiting)} have not reached ClickHouse after {_SETTLE_S:.0f} s.",
                next_step=f"Read {data_dir.logs / 'collector.log'}; nothing is lost, and the same command continues.",
            )
        time.sleep(_POLL_S)


def gateway_tokens(data_dir: DataDir) -> float | None:
    """Return the tokens that the gateway has answered since its start; None when it does not say."""
    text = _get(data_dir, "gateway", "metrics")
    return None if text is None else sum(float(value) for value in _TOKENS.findall(text.text))


def _waits(data_dir: DataDir, service: str, key: str) -> bool:
    """Whether a service has records that are not stored yet; True when it does not answer."""
    response = _get(data_dir, service, "healthz")
    try:
        health: dict[str, Any] = {} if response is None else response.json()[key]
    except (ValueError, KeyError):
        return True
    return not health or bool(health.get("records", health.get("waiting_bytes", 0)))


def _get(data_dir: DataDir, service: str, path: str) -> httpx.Response | None:
    address = data_dir.find(service)
    if address is None:
        return None
    try:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False, verify=trusted_certificates(address.url)) as client:
            return client.get(f"{address.url}/{path}").raise_for_status()
    except httpx.HTTPError:
        return None


class TokenMeter:
    """Counts the tokens that the gateway answers from its making on; a restart of the gateway loses none.

    Args:
        data_dir: Of the gateway.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._last = gateway_tokens(data_dir) or 0.0
        self._total = 0.0

    def read(self) -> int:
        """Return the tokens so far; while the gateway does not answer, those of the last reading."""
        now = gateway_tokens(self._data_dir)
        if now is not None:
            self._total += now - self._last if now >= self._last else now
            self._last = now
        return round(self._total)
