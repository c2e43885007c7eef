"""Read the ``/healthz`` pages of collector and gateway, on this machine or where a setting names them."""

import json
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanloop.foundation.paths import DataDir

_TIMEOUT_S: Final = 2.0
_NO_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class GatewayHealth(NamedTuple):
    """The model that the gateway serves, and its captures."""

    state: str
    """The engine's state, such as ``serving`` or ``restarting``."""
    model: str
    """``name@version``; empty before the first deployment."""
    error: str
    waiting_bytes: int
    """Size of the captures that are not yet in ClickHouse."""
    oldest_age_s: float
    states: "Mapping[str, str]"
    """The state of an engine by the ``name@version`` that it serves."""


class SpoolHealth(NamedTuple):
    """The records that the collector has on disk and not yet in ClickHouse."""

    waiting_bytes: int
    oldest_age_s: float
    store: str
    """``ok``, else why nothing can be inserted into ClickHouse."""


class CollectorHealth(NamedTuple):
    """The collector's counts since its start."""

    accepted: "Mapping[str, int]"
    """Spans and log records that are on disk, by signal."""
    rejected: "Mapping[str, int]"
    """Spans and log records that were rejected, by reason."""
    refused_requests: "Mapping[str, int]"
    """Requests that were refused as a whole, by HTTP status."""
    redacted: "Mapping[str, int]"
    """Values that were dropped or masked, by rule."""
    inserted: int
    """Rows that ClickHouse confirmed."""
    insert_failures: int
    """Insert attempts that failed; each was retried."""
    insert_latency: "Mapping[str, float | None]"
    """``count``, ``mean_s``, and the upper bounds ``p50_s`` and ``p99_s``, None above the largest bucket."""
    last_insert: str
    """ISO 8601; empty before the first."""
    store: str
    """``ok``, else why nothing can be inserted into ClickHouse."""
    disk: str
    """``ok``, else why nothing can be written to the spool."""
    spool: "Mapping[str, float]"
    """``bytes``, ``records``, ``oldest_age_s``, ``quarantined``."""


def gateway_health(data_dir: "DataDir") -> GatewayHealth | None:
    """Return the gateway's health; None when it does not respond."""
    health = _get_health(data_dir, "gateway")
    if health is None:
        return None
    model = f"{health['model']}@{health['version']}" if health["model"] else ""
    captures = health["captures"]
    return GatewayHealth(
        health["engine"],
        model,
        health["error"],
        int(captures["waiting_bytes"]),
        float(captures["oldest_age_s"]),
        {model: health["engine"]}
        | {str(each["model"]): each["state"] for each in health.get("engines", ()) if each["model"]},
    )


def spool_health(data_dir: "DataDir") -> SpoolHealth | None:
    """Return what waits in the collector's spool; None when the collector does not respond."""
    health = _get_health(data_dir, "collector")
    if health is None:
        return None
    return SpoolHealth(int(health["spool"]["bytes"]), float(health["spool"]["oldest_age_s"]), str(health["store"]))


def collector_health(data_dir: "DataDir") -> CollectorHealth | None:
    """Return the collector's counts; None when it does not respond."""
    health = _get_health(data_dir, "collector")
    if health is None:
        return None
    # A collector of an earlier version sends fewer keys.
    return CollectorHealth(
        accepted=health.get("accepted", {}),
        rejected=health.get("rejected", {}),
        refused_requests=health.get("refused_requests", {}),
        redacted=health.get("redacted", {}),
        inserted=health.get("inserted", 0),
        insert_failures=health.get("insert_failures", 0),
        insert_latency=health.get("insert_latency", {}),
        last_insert=health.get("last_insert") or "",
        store=health["store"],
        disk=health.get("disk", "ok"),
        spool=health["spool"],
    )


def _get_health(data_dir: "DataDir", service: str) -> dict[str, Any] | None:
    address = data_dir.find(service)
    if address is None:
        return None
    try:
        with _NO_PROXY.open(f"{address.url}/healthz", timeout=_TIMEOUT_S) as response:
            health: dict[str, Any] = json.load(response)
    except (OSError, ValueError):
        return None
    return health
