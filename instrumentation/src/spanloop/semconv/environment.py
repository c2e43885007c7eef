"""Where a process on this machine finds spanloop: environment variables, default ports and the run files.

Standard library only, because the distro inside a user's app uses it. A service writes ``run/<service>.json``
into the data directory when it answers and removes it when it stops; whoever wants to talk to it reads that file.
"""

import json
import os
from pathlib import Path
from typing import Final, NamedTuple

DATA_DIR_ENV: Final = "SPANLOOP_DATA_DIR"
"""The data directory; ``~/.spanloop`` when unset."""

CLICKHOUSE_URL_ENV: Final = "SPANLOOP_CLICKHOUSE_URL"
"""``http(s)://user:password@host:port/database``; unset means the embedded ClickHouse."""

CONVERT_MEMORY_ENV: Final = "SPANLOOP_CONVERT_MEMORY_MIB"
"""About how much memory a conversion may need, MiB."""

REWARDS_ENV: Final = "SPANLOOP_REWARDS"
"""Reward functions that every conversion asks, by name or as ``module:function``, with commas between them."""

TASK_ID_ENV: Final = "SPANLOOP_TASK_ID"
"""The task that the whole process attempts, for apps that do not call ``task()``."""

EXIT_TIMEOUT_ENV: Final = "SPANLOOP_EXIT_TIMEOUT_S"
"""How long an instrumented app may wait at its end for its last spans to be taken, in seconds; 1 when unset."""

COLLECTOR_PORT: Final = 4318
GATEWAY_PORT: Final = 8010
DASHBOARD_PORT: Final = 8501


class RunningService(NamedTuple):
    """One service that announced itself."""

    service: str
    url: str
    pid: int


def default_data_dir() -> Path:
    """The data directory that the environment names, else ``~/.spanloop``."""
    return Path(os.environ.get(DATA_DIR_ENV) or Path.home() / ".spanloop").expanduser().absolute()


def read_run_file(data_dir: Path, service: str) -> RunningService | None:
    """The announced ``service``, or None when there is no run file or its process is gone."""
    try:
        content = json.loads((data_dir / "run" / f"{service}.json").read_text())
        found = RunningService(service, str(content["url"]), int(content["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _is_alive(found.pid) else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
