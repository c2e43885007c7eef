"""Read which services run, and where, from settings and run files, without any network request."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from spanloop.semconv.environment import (
    CLICKHOUSE_URL_ENV,
    CONTROL_URL_ENV,
    SERVICE_URL_ENVS,
    configured_address,
    read_run_file,
    read_setting,
    split_urls,
)

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
    """One service, as a setting or its run file states it."""

    name: str
    purpose: str
    is_running: bool
    """Its run file says so, or a setting names its address."""
    url: str
    """Without credentials; empty when the service does not run or announces none."""
    note: str = ""
    """The setting by which it may run on another host; empty for a service of this machine."""


_WITHOUT_ADDRESS: Final = {"pipeline": CLICKHOUSE_URL_ENV, "scheduler": CONTROL_URL_ENV}
"""Services that listen on no port, and the setting by which they may run on another host."""


def service_states(data_dir: Path) -> list[ServiceState]:
    """Return the state of every service. One that a setting names counts as running: nothing is requested from it.

    Raises:
        ConfigurationError: A setting cannot be read.
    """
    return [_state(data_dir, name, purpose) for name, purpose in SERVICES.items()]


def _state(data_dir: Path, name: str, purpose: str) -> ServiceState:
    if name == "clickhouse" and (clickhouse_url := read_setting(CLICKHOUSE_URL_ENV)):
        note = f"external, by {CLICKHOUSE_URL_ENV}"
        urls = ", ".join(map(without_credentials, split_urls(clickhouse_url)))
        return ServiceState(name, purpose, is_running=True, url=urls, note=note)
    if (address := configured_address(name)) is not None:
        note = f"by {SERVICE_URL_ENVS[name]}"
        return ServiceState(name, purpose, is_running=True, url=without_credentials(address.url), note=note)
    run_file = read_run_file(data_dir, name)
    if run_file is not None:
        return ServiceState(name, purpose, is_running=True, url=without_credentials(run_file.url))
    setting = _WITHOUT_ADDRESS.get(name, "")
    note = f"not on this machine; by {setting} it may run on another" if setting and read_setting(setting) else ""
    return ServiceState(name, purpose, is_running=False, url="", note=note)


def may_run_elsewhere(data_dir: Path, service: str) -> bool:
    """Return whether a service may run although no run file of this machine says so."""
    return bool(_state(data_dir, service, "").note)


def without_credentials(url: str) -> str:
    """Return ``url`` without user, password and query, so that it can be shown."""
    parts = urlsplit(url)
    if not parts.hostname:
        return ""
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{host}{port}{parts.path}"
