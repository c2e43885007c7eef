"""What running services say about themselves on ``/healthz``: what is served, what waits in a spool."""

import json
import urllib.request
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from spanloop.store import DataDir

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
