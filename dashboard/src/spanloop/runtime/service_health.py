"""What running services say about themselves on ``/healthz``: what is served, what waits in a spool."""

import json
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spanloop.datadir import DataDir

_TIMEOUT_S: Final = 2.0
_NO_PROXY: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Engine(NamedTuple):
    """What the gateway serves."""

    state: str
    """The gateway's word for it, such as ``serving`` or ``restarting``."""
    model: str
    """``name@version``; empty before the first deployment."""
    error: str
    waiting_bytes: int
    """Captures on their way to ClickHouse."""
    oldest_age_s: float


class Spool(NamedTuple):
    """What the collector has on disk and not yet in ClickHouse."""

    waiting_bytes: int
    oldest_age_s: float
    store: str
    """``ok``, else why ClickHouse gets nothing."""


class Collector(NamedTuple):
    """What the collector has done since its start."""

    accepted: "Mapping[str, int]"
    """Spans and log records that are on disk, by signal."""
    rejected: "Mapping[str, int]"
    """Those that were refused, by reason."""
    refused_requests: "Mapping[str, int]"
    """Requests that were refused as a whole, by HTTP status."""
    redacted: "Mapping[str, int]"
    """Values that were dropped or masked, by rule."""
    inserted: int
    """Rows that ClickHouse confirmed."""
    insert_failures: int
    """Attempts that failed; each was made again."""
    insert_latency: "Mapping[str, float | None]"
    """``count``, ``mean_s``, and upper bounds ``p50_s`` and ``p99_s``, None above the largest."""
    last_insert: str
    """ISO 8601; empty before the first."""
    store: str
    """``ok``, else why ClickHouse gets nothing."""
    disk: str
    """``ok``, else why the spool takes nothing."""
    spool: "Mapping[str, float]"
    """``bytes``, ``records``, ``oldest_age_s``, ``quarantined``."""


def engine(data_dir: "DataDir") -> Engine | None:
    """What the gateway serves; None when it does not answer."""
    said = _health(data_dir, "gateway")
    if said is None:
        return None
    model = f"{said['model']}@{said['version']}" if said["model"] else ""
    captures = said["captures"]
    return Engine(said["engine"], model, said["error"], int(captures["waiting_bytes"]), float(captures["oldest_age_s"]))


def spool(data_dir: "DataDir") -> Spool | None:
    """What waits in the collector's spool; None when it does not answer."""
    said = _health(data_dir, "collector")
    if said is None:
        return None
    return Spool(int(said["spool"]["bytes"]), float(said["spool"]["oldest_age_s"]), str(said["store"]))


def collector(data_dir: "DataDir") -> Collector | None:
    """What the collector says of itself; None when it does not answer."""
    said = _health(data_dir, "collector")
    if said is None:
        return None
    # One of an earlier spanloop says less.
    return Collector(
        accepted=said.get("accepted", {}),
        rejected=said.get("rejected", {}),
        refused_requests=said.get("refused_requests", {}),
        redacted=said.get("redacted", {}),
        inserted=said.get("inserted", 0),
        insert_failures=said.get("insert_failures", 0),
        insert_latency=said.get("insert_latency", {}),
        last_insert=said.get("last_insert") or "",
        store=said["store"],
        disk=said.get("disk", "ok"),
        spool=said["spool"],
    )


def _health(data_dir: "DataDir", service: str) -> dict[str, Any] | None:
    running = data_dir.running(service)
    if running is None:
        return None
    try:
        with _NO_PROXY.open(f"{running.url}/healthz", timeout=_TIMEOUT_S) as answer:
            said: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return None
    return said
