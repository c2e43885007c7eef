"""Environment variables, default ports and run files by which processes find spanloop's services.

Standard library only, because the distro inside a user's app uses it. A service writes ``run/<service>.json``
into the data directory when it is ready and removes it when it stops; clients on this machine read that file.

Invariant: an address that a variable names wins over a run file. A secret may be given as ``NAME``, or as
``NAME_FILE``, the path of a file that holds it, and never as both.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from .errors import ConfigurationError

DATA_DIR_ENV: Final = "SPANLOOP_DATA_DIR"
"""The data directory; ``~/.spanloop`` when unset."""

CLICKHOUSE_URL_ENV: Final = "SPANLOOP_CLICKHOUSE_URL"
"""``http(s)://user:password@host:port/database``; unset means the embedded ClickHouse. Of several URLs, separated by
commas, the next one is used when a server does not answer. ``SPANLOOP_CLICKHOUSE_URL_FILE`` names a file that holds
it."""

CLICKHOUSE_CLUSTER_ENV: Final = "SPANLOOP_CLICKHOUSE_CLUSTER"
"""Name of a cluster in ``remote_servers`` of these servers, over which the store is spread; unset means one server."""

CONTROL_URL_ENV: Final = "SPANLOOP_CONTROL_URL"
"""SQLAlchemy URL of the control database; unset means ``control.db`` in the data directory.
``SPANLOOP_CONTROL_URL_FILE`` names a file that holds it."""

COLLECTOR_URL_ENV: Final = "SPANLOOP_COLLECTOR_URL"
"""Base URL of a collector on any host; unset means the one that runs on the data directory."""

GATEWAY_URL_ENV: Final = "SPANLOOP_GATEWAY_URL"
"""Base URL of a gateway on any host; unset means the one that runs on the data directory."""

DASHBOARD_URL_ENV: Final = "SPANLOOP_DASHBOARD_URL"
"""Base URL of a dashboard on any host; unset means the one that runs on the data directory."""

KEY_ENV: Final = "SPANLOOP_KEY"
"""The API key with which this process calls the services that the other variables name. ``SPANLOOP_KEY_FILE`` names a
file that holds it."""

SHARED_DIR_ENV: Final = "SPANLOOP_SHARED_DIR"
"""The folder of models, jobs and API keys that the roles on all hosts share; unset means the data directory."""

STORAGE_URL_ENV: Final = "SPANLOOP_STORAGE_URL"
"""Object storage of models, data sets and checkpoints, such as ``s3://bucket/prefix``; unset means folders."""

STORAGE_CACHE_BYTES_ENV: Final = "SPANLOOP_STORAGE_CACHE_BYTES"
"""Most bytes of the copies of objects on this host."""

FILE_SUFFIX: Final = "_FILE"
"""``SPANLOOP_KEY_FILE`` names a file that holds the value of ``SPANLOOP_KEY``."""

CONVERT_MEMORY_ENV: Final = "SPANLOOP_CONVERT_MEMORY_MIB"
"""Approximate memory limit of a conversion, MiB."""

REWARDS_ENV: Final = "SPANLOOP_REWARDS"
"""Reward functions of every conversion, by name or as ``module:function``, separated by commas."""

TASK_ID_ENV: Final = "SPANLOOP_TASK_ID"
"""The task that the whole process attempts, for apps that do not call ``task()``."""

EPISODE_ID_ENV: Final = "SPANLOOP_EPISODE_ID"
"""The episode id that the task runner gives to the process's attempt; `task()` inside continues it."""

SEED_ENV: Final = "SPANLOOP_SEED"
"""The seed that the task runner gives to the attempt, below 2^31."""

RUN_ID_ENV: Final = "SPANLOOP_RUN_ID"
"""The run that the task runner starts the process for."""

ENVIRONMENT_URL_ENV: Final = "SPANLOOP_ENVIRONMENT_URL"
"""Base URL of the environment that the attempt acts in; set by the task runner."""

ENVIRONMENT_SESSION_ENV: Final = "SPANLOOP_ENVIRONMENT_SESSION"
"""The attempt's session there, which is its key too; set by the task runner."""

PROCESS_MARK_ENV: Final = "SPANLOOP_PROCESS_MARK"
"""Set by the task runner on the processes that it starts, by which it finds and ends what they leave behind."""

EXIT_TIMEOUT_ENV: Final = "SPANLOOP_EXIT_TIMEOUT_S"
"""How long an instrumented app may wait at exit until its last spans are sent, in seconds; 1 when unset."""

CONFIG_ENV: Final = "SPANLOOP_CONFIG"
"""The configuration file; default: `spanloop.toml` in the working directory, else in the data directory."""

LOG_FORMAT_ENV: Final = "SPANLOOP_LOG_FORMAT"
"""Format of the logs of all roles: text or json."""

_NEXT_URL: Final = re.compile(r"\s*,\s*(?=https?://)")

CONFIG_NAME: Final = "spanloop.toml"
COLLECTOR_PORT: Final = 4318
GATEWAY_PORT: Final = 8010
DASHBOARD_PORT: Final = 8501


SERVICE_URL_ENVS: Final = {
    "collector": COLLECTOR_URL_ENV,
    "gateway": GATEWAY_URL_ENV,
    "dashboard": DASHBOARD_URL_ENV,
}
"""The services that other processes call by HTTP, and the variable that names the address of each."""


class RunningService(NamedTuple):
    """One service that announced itself on this machine."""

    service: str
    url: str
    pid: int


class ServiceAddress(NamedTuple):
    """Where a service is reached."""

    service: str
    url: str
    """Without a slash at its end."""
    is_configured: bool
    """A variable names it, so it may run on any host; else a run file on this machine does."""


def read_setting(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the variable ``name``, else the content of the file that ``NAME_FILE`` names; empty when neither is set.

    Raises:
        ConfigurationError: Both are set, or the file cannot be read or is empty. No message contains the value.
    """
    variables = os.environ if environment is None else environment
    value, file = variables.get(name, ""), variables.get(name + FILE_SUFFIX, "")
    if not file:
        return value
    if value:
        raise ConfigurationError(f"{name} and {name}{FILE_SUFFIX} are both set.", next_step="Unset one of them.")
    try:
        content = Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigurationError(
            f"{name}{FILE_SUFFIX} names {file}, which cannot be read: {reason}.",
            next_step=f"Let it name a readable file that holds the value of {name}.",
        ) from error
    if not content:
        raise ConfigurationError(
            f"{name}{FILE_SUFFIX} names {file}, which is empty.", next_step=f"Write the value of {name} into it."
        )
    return content


def split_urls(urls: str) -> list[str]:
    """Return the URLs of a text that separates them by commas; a password may contain a comma."""
    return _NEXT_URL.split(urls.strip())


def configured_address(service: str) -> ServiceAddress | None:
    """Return the address of ``service`` that a variable names, else None.

    Raises:
        ConfigurationError: It is not a URL of a server.
    """
    name = SERVICE_URL_ENVS.get(service, "")
    url = os.environ.get(name, "").strip().rstrip("/") if name else ""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username or parts.query:
        raise ConfigurationError(
            f"{name} is not the base URL of a {service}: expected http(s)://host:port, without user and query.",
            next_step=f"Set it to the address at which this host reaches the {service}; a key belongs into {KEY_ENV}.",
        )
    return ServiceAddress(service, url, is_configured=True)


def find_service(data_dir: Path, service: str) -> ServiceAddress | None:
    """Return where ``service`` is reached: the configured address, else the one announced on this machine, else None.

    Raises:
        ConfigurationError: The configured address is not a URL of a server.
    """
    if (configured := configured_address(service)) is not None:
        return configured
    running = read_run_file(data_dir, service)
    return None if running is None else ServiceAddress(service, running.url.rstrip("/"), is_configured=False)


def shared_dir(data_dir: Path) -> Path:
    """Return the folder that holds ``models/``, ``jobs/`` and the API keys of ``data_dir``."""
    shared = os.environ.get(SHARED_DIR_ENV, "")
    return Path(shared).expanduser().absolute() if shared else data_dir


def find_configuration(data_dir: Path, environment: Mapping[str, str] | None = None) -> Path | None:
    """The file that applies: ``$SPANLOOP_CONFIG``, else ``spanloop.toml`` here, else in the data directory."""
    named = (os.environ if environment is None else environment).get(CONFIG_ENV, "")
    if named:
        return Path(named).expanduser()
    return next((path for path in (Path(CONFIG_NAME), data_dir / CONFIG_NAME) if path.is_file()), None)


def default_data_dir() -> Path:
    """Return the data directory of the environment, else ``~/.spanloop``."""
    return Path(os.environ.get(DATA_DIR_ENV) or Path.home() / ".spanloop").expanduser().absolute()


def read_run_file(data_dir: Path, service: str) -> RunningService | None:
    """Return the announced ``service``, or None when it has no run file or its process is gone."""
    try:
        content = json.loads((data_dir / "run" / f"{service}.json").read_text())
        running_service = RunningService(service, str(content["url"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running_service if _is_alive(running_service.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
