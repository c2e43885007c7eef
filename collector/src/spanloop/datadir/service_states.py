"""Read which services run from their run files, without any network request."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_run_file

SERVICES: Final = {
    "clickhouse": "stores everything",
    "collector": "receives spans",
    "pipeline": "converts spans into episodes",
    "gateway": "serves the policy",
    "scheduler": "runs jobs",
    "dashboard": "shows these pages",
}


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service, as its run file states it."""

    name: str
    purpose: str
    is_running: bool
    url: str
    """Without credentials; empty when the service does not run or announces none."""
    note: str = ""


def service_states(data_dir: Path, clickhouse_url: str) -> list[ServiceState]:
    """Return the state of every service; ``clickhouse_url`` names an external ClickHouse, which has no run file."""
    states: list[ServiceState] = []
    for name, purpose in SERVICES.items():
        if name == "clickhouse" and clickhouse_url:
            note = f"external, by {CLICKHOUSE_URL_ENV}"
            states.append(
                ServiceState(name, purpose, is_running=True, url=without_credentials(clickhouse_url), note=note)
            )
            continue
        run_file = read_run_file(data_dir, name)
        url = without_credentials(run_file.url) if run_file else ""
        states.append(ServiceState(name, purpose, is_running=run_file is not None, url=url))
    return states


def without_credentials(url: str) -> str:
    """Return ``url`` without user, password and query, so that it can be shown."""
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
