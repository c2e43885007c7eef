"""What the embedded ClickHouse is told: its configuration files, its password, its memory cap.

Invariant: it listens on the loopback only, and nobody gets in without the password. The user ``default`` must exist,
because the engine's own session is it; it may open listeners and sleep, and nothing else.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from spanloop.datadir import DataDir
from spanloop.semconv.errors import DataDirectoryError

USER: Final = "spanloop"
MALLOC_ENV: Final = "JE_MALLOC_CONF"
"""Where the engine's jemalloc looks for settings, when it is loaded."""
MALLOC_SETTINGS: Final = "dirty_decay_ms:60000,oversize_threshold:0"
"""Keep freed memory for a minute instead of five seconds, pieces of 64 MiB and more too. Columns of a block are such
pieces: without this an insert spends a quarter of its time on getting pages that it had a moment before."""
_MEMORY_SHARE: Final = 0.25
_MEMORY_CAP_MAX_BYTES: Final = 4 * 2**30
_MEMORY_CAP_MIN_BYTES: Final = 512 * 2**20

_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

# clickhouse-local, which the engine is, ignores logger.level: only log-level keeps it from tracing every query.
# It would also wait 5 s at the end for idle connections of clients that are still there.
# To merge a span costs as much as to insert it: parts wait for ten of their size (default five), or for their age.
_CONFIG: Final = """<clickhouse>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{port}</http_port>
  <users_config>users.xml</users_config>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{memory_cap_bytes}</max_server_memory_usage>
  <mark_cache_size>134217728</mark_cache_size>
  <primary_index_cache_size>134217728</primary_index_cache_size>
  <index_mark_cache_size>67108864</index_mark_cache_size>
  <shutdown_wait_unfinished>1</shutdown_wait_unfinished>
  <backups><allowed_path>{backups}</allowed_path></backups>
  <merge_tree><merge_selector_base>10</merge_selector_base></merge_tree>
  <log-level>warning</log-level>
  <query_log>
    <database>system</database>
    <table>query_log</table>
    <ttl>event_date + INTERVAL 3 DAY</ttl>
  </query_log>
  <logger>
    <log>{log}</log>
    <size>20M</size>
    <count>2</count>
  </logger>
</clickhouse>
"""
# Form fields are parsed before anybody is logged in, so that their limit belongs to the default profile.
_USERS: Final = """<clickhouse>
  <profiles>
    <default>
      <http_max_field_value_size>67108864</http_max_field_value_size>
      <max_memory_usage>{query_memory_bytes}</max_memory_usage>
      <log_queries>0</log_queries>
    </default>
  </profiles>
  <quotas><default/></quotas>
  <users>
    <default>
      <password/>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
    <{user}>
      <password_sha256_hex>{password_hash}</password_sha256_hex>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>default</profile>
      <quota>default</quota>
    </{user}>
  </users>
</clickhouse>
"""


def default_memory_cap_bytes() -> int:
    """A quarter of the memory of the machine or container, at least 512 MiB and at most 4 GiB."""
    total = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits_bytes())
    return max(_MEMORY_CAP_MIN_BYTES, min(_MEMORY_CAP_MAX_BYTES, int(total * _MEMORY_SHARE)))


def _container_limits_bytes() -> Iterator[int]:
    for path in _CGROUP_LIMITS:
        # "max", or no such file, is no limit.
        with suppress(OSError, ValueError):
            yield int(path.read_text(encoding="ascii"))


def write_config(data_dir: DataDir, *, port: int, memory_cap_bytes: int) -> None:
    """Write ``config.xml`` and ``users.xml`` for the next start.

    Raises:
        DataDirectoryError: Not writable, or no space left.
    """
    folder = data_dir.clickhouse_conf
    data_dir.write(
        folder / "config.xml",
        _CONFIG.format(
            port=port,
            memory_cap_bytes=memory_cap_bytes,
            log=escape(str(server_log(data_dir))),
            backups=escape(str(backups_folder(data_dir))),
        ),
    )
    data_dir.write(
        folder / "users.xml",
        _USERS.format(
            user=USER,
            password_hash=hashlib.sha256(ensure_secret(data_dir).encode()).hexdigest(),
            query_memory_bytes=int(memory_cap_bytes * 0.8),
        ),
    )


def server_log(data_dir: DataDir) -> Path:
    """The engine's own log; what the process prints is elsewhere."""
    return data_dir.clickhouse_conf / "clickhouse.log"


def backups_folder(data_dir: DataDir) -> Path:
    """The only folder that the server backs up to and restores from: holds a link to the real place meanwhile."""
    return data_dir.clickhouse_conf / "backups"


def ensure_secret(data_dir: DataDir) -> str:
    """The password, made at the first start and kept, so that clients survive a restart of the server."""
    if not data_dir.clickhouse_secret.exists():
        data_dir.write(data_dir.clickhouse_secret, secrets.token_urlsafe(32))
    return read_secret(data_dir)


def read_secret(data_dir: DataDir) -> str:
    """The password of the embedded server.

    Raises:
        DataDirectoryError: The file is missing, empty or not readable.
    """
    path = data_dir.clickhouse_secret
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise DataDirectoryError(
            f"The password of the embedded ClickHouse cannot be read from {path}: {error}.",
            next_step="Run as the user that started it, or remove the file and start it again.",
        ) from error
    if not secret:
        raise DataDirectoryError(f"{path} is empty.", next_step="Remove it and start the embedded ClickHouse again.")
    return secret
