"""Which services run, by their run files: no network, so that a page can ask on every paint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_run_file

SERVICES: Final = {
    "clickhouse": "stores everything",
    "collector": "takes spans in",
    "pipeline": "makes episodes",
    "gateway": "serves the policy",
    "scheduler": "runs jobs",
    "dashboard": "shows this",
}


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service as the data directory announces it."""

    name: str
    purpose: str
    is_running: bool
    url: str
    """Without credentials; empty when it does not run or does not say."""
    note: str = ""


def service_states(data_dir: Path, clickhouse_url: str) -> list[ServiceState]:
    """The state of every service.

    Args:
        data_dir: Where the run files are.
        clickhouse_url: What ``SPANLOOP_CLICKHOUSE_URL`` says; then ClickHouse is not ours and has no run file.
    """
    states: list[ServiceState] = []
    for name, purpose in SERVICES.items():
        if name == "clickhouse" and clickhouse_url:
            note = f"external, by {CLICKHOUSE_URL_ENV}"
            states.append(
                ServiceState(name, purpose, is_running=True, url=without_credentials(clickhouse_url), note=note)
            )
            continue
        found = read_run_file(data_dir, name)
        url = without_credentials(found.url) if found else ""
        states.append(ServiceState(name, purpose, is_running=found is not None, url=url))
    return states


def without_credentials(url: str) -> str:
    """``url`` without user, password and query: what may be shown on a page."""
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
