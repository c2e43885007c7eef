"""Environment variables, default ports and run files by which processes on this machine find spanloop.

Standard library only, because the distro inside a user's app uses it. A service writes ``run/<service>.json``
into the data directory when it is ready and removes it when it stops; clients on this machine read that file.
"""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

DATA_DIR_ENV: Final = "SPANLOOP_DATA_DIR"
"""The data directory; ``~/.spanloop`` when unset."""

CLICKHOUSE_URL_ENV: Final = "SPANLOOP_CLICKHOUSE_URL"
"""``http(s)://user:password@host:port/database``; unset means the embedded ClickHouse."""

CONTROL_URL_ENV: Final = "SPANLOOP_CONTROL_URL"
"""SQLAlchemy URL of the control database; unset means ``control.db`` in the data directory."""

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

PROCESS_MARK_ENV: Final = "SPANLOOP_PROCESS_MARK"
"""Set by the task runner on the processes that it starts, by which it finds and ends what they leave behind."""

EXIT_TIMEOUT_ENV: Final = "SPANLOOP_EXIT_TIMEOUT_S"
"""How long an instrumented app may wait at exit until its last spans are sent, in seconds; 1 when unset."""

CONFIG_ENV: Final = "SPANLOOP_CONFIG"
"""The configuration file; default: `spanloop.toml` in the working directory, else in the data directory."""

LOG_FORMAT_ENV: Final = "SPANLOOP_LOG_FORMAT"
"""Format of the logs of all roles: text or json."""

COLLECTOR_PORT: Final = 4318
GATEWAY_PORT: Final = 8010
DASHBOARD_PORT: Final = 8501


class RunningService(NamedTuple):
    """One service that announced itself."""

    service: str
    url: str
    pid: int


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
