"""Configuration files, password and memory cap of the embedded ClickHouse.

Invariant: the server requires the password, and listens on the loopback interface unless told otherwise.

The user ``default`` must exist, because the engine's own session uses it, and the engine lets it log in without a
password from every address at which it listens, whatever ``networks`` says. So its quota is what that session needs,
two statements. The engine counts no query of constants (``SELECT 1``); one of these runs at a time.
"""

import hashlib
import os
import secrets
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.paths import DataDir

USER: Final = "spanloop"
LOOPBACK: Final = "127.0.0.1"
MALLOC_ENV: Final = "JE_MALLOC_CONF"
"""Environment variable from which the engine's jemalloc reads its settings when it is loaded."""
MALLOC_SETTINGS: Final = "dirty_decay_ms:60000,oversize_threshold:0"
"""Keep freed memory for a minute instead of five seconds, including allocations of 64 MiB and more, such as the columns
of a block. Without this, an insert spends a quarter of its time on page faults for memory that was just freed."""
_MIN_SECRET_CHARACTERS: Final = 16
_MEMORY_SHARE: Final = 0.25
_MEMORY_CAP_MAX_BYTES: Final = 4 * 2**30
_MEMORY_CAP_MIN_BYTES: Final = 512 * 2**20

_CGROUP_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

# The engine is clickhouse-local, which ignores logger.level: only log-level stops it from tracing every query.
# async: the thread of the asynchronous log took a third of an idle server's CPU time.
# shutdown_wait_unfinished: the default waits 5 s at shutdown for idle connections of clients.
# background_processing_pool_…: each table looks for work 0.1 s, 0.21 s, 0.33 s, … after its last insert by default.
# …_when_no_work_max: a table whose merge or mutation is refused asks again after up to 600 s by default.
# background_merges_mutations_…: clickhouse-local takes four merges and mutations of parts at a time, so that a mutation
# of 40 parts waited half a minute for a timer. Two threads run them as before, the shortest first, which bounds memory.
# background_schedule_pool_…, …streaming…: with two threads, each task of a table wrote a warning into the log.
# memory_worker_period_ms: the default measures the process's memory ten times a second.
# merge_selector_base: merging a span costs as much as inserting it, so merges wait for ten parts (default five).
_CONFIG: Final = """<clickhouse>
{listen_hosts}
  <http_port>{port}</http_port>
  <users_config>users.xml</users_config>
  <timezone>UTC</timezone>
  <max_server_memory_usage>{memory_cap_bytes}</max_server_memory_usage>
  <mark_cache_size>134217728</mark_cache_size>
  <primary_index_cache_size>134217728</primary_index_cache_size>
  <index_mark_cache_size>67108864</index_mark_cache_size>
  <shutdown_wait_unfinished>1</shutdown_wait_unfinished>
  <background_processing_pool_thread_sleep_seconds_if_nothing_to_do>2</background_processing_pool_thread_sleep_seconds_if_nothing_to_do>
  <background_processing_pool_task_sleep_seconds_when_no_work_multiplier>1.5</background_processing_pool_task_sleep_seconds_when_no_work_multiplier>
  <background_processing_pool_task_sleep_seconds_when_no_work_max>10</background_processing_pool_task_sleep_seconds_when_no_work_max>
  <background_merges_mutations_concurrency_ratio>32</background_merges_mutations_concurrency_ratio>
  <background_merges_mutations_scheduling_policy>shortest_task_first</background_merges_mutations_scheduling_policy>
  <background_schedule_pool_size>8</background_schedule_pool_size>
  <background_schedule_pool_max_parallel_tasks_per_type_ratio>1</background_schedule_pool_max_parallel_tasks_per_type_ratio>
  <background_streaming_schedule_pool_size>8</background_streaming_schedule_pool_size>
  <memory_worker_period_ms>1000</memory_worker_period_ms>
  <backups><allowed_path>{backups}</allowed_path></backups>
  <merge_tree><merge_selector_base>10</merge_selector_base></merge_tree>
  <log-level>warning</log-level>
  <query_log>
    <database>system</database>
    <table>query_log</table>
    <ttl>event_date + INTERVAL 3 DAY</ttl>
  </query_log>
  <logger>
    <async>false</async>
    <log>{log}</log>
    <size>20M</size>
    <count>2</count>
  </logger>
</clickhouse>
"""
# compile_…: compiling an expression to machine code takes 20 ms of CPU time, more than most of spanloop's queries.
# Form fields are parsed before authentication, so their limit must be set in the default profile.
_USERS: Final = """<clickhouse>
  <profiles>
    <default>
      <http_max_field_value_size>67108864</http_max_field_value_size>
      <max_memory_usage>{query_memory_bytes}</max_memory_usage>
      <log_queries>0</log_queries>
      <compile_expressions>0</compile_expressions>
      <compile_aggregate_expressions>0</compile_aggregate_expressions>
      <compile_sort_description>0</compile_sort_description>
    </default>
    <session>
      <max_concurrent_queries_for_user>1</max_concurrent_queries_for_user>
      <max_memory_usage>67108864</max_memory_usage>
      <constraints>
        <max_concurrent_queries_for_user><readonly/></max_concurrent_queries_for_user>
        <max_memory_usage><readonly/></max_memory_usage>
      </constraints>
    </session>
  </profiles>
  <quotas>
    <default/>
    <session><interval><duration>2000000000</duration><queries>2</queries></interval></session>
  </quotas>
  <users>
    <default>
      <password/>
      <networks><ip>127.0.0.1</ip></networks>
      <profile>session</profile>
      <quota>session</quota>
      <grants>
        <query>GRANT SYSTEM LISTEN ON *.*</query>
        <query>GRANT SELECT ON system.numbers</query>
      </grants>
    </default>
    <{user}>
      <password_sha256_hex>{password_hash}</password_sha256_hex>
      <networks>{networks}</networks>
      <profile>default</profile>
      <quota>default</quota>
    </{user}>
  </users>
</clickhouse>
"""


def is_wildcard(host: str) -> bool:
    """Return whether an address means every interface."""
    return host in {"0.0.0.0", "::"}  # noqa: S104 - only compared


def default_memory_cap_bytes() -> int:
    """Return a quarter of the memory of the machine or container, at least 512 MiB and at most 4 GiB."""
    total = min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_container_limits_bytes())
    return max(_MEMORY_CAP_MIN_BYTES, min(_MEMORY_CAP_MAX_BYTES, int(total * _MEMORY_SHARE)))


def _container_limits_bytes() -> Iterator[int]:
    for path in _CGROUP_LIMITS:
        # "max" or a missing file means no limit.
        with suppress(OSError, ValueError):
            yield int(path.read_text(encoding="ascii"))


def write_config(data_dir: DataDir, *, port: int, memory_cap_bytes: int, host: str = LOOPBACK) -> None:
    """Write ``config.xml`` and ``users.xml`` for the next start; it raises as `DataDir.write`.

    Args:
        data_dir: The data directory.
        port: HTTP port.
        memory_cap_bytes: Memory limit of the server.
        host: Address to listen on, beside the loopback; clients anywhere can log in when it is another one.
    """
    folder = data_dir.clickhouse_conf
    # A wildcard address includes the loopback, which could not be bound a second time.
    hosts = [host] if host == LOOPBACK or is_wildcard(host) else [LOOPBACK, host]
    anywhere = "<ip>::/0</ip>"
    data_dir.write(
        folder / "config.xml",
        _CONFIG.format(
            port=port,
            listen_hosts="\n".join(f"  <listen_host>{escape(each)}</listen_host>" for each in hosts),
            memory_cap_bytes=memory_cap_bytes,
            log=escape(str(server_log(data_dir))),
            backups=escape(str(backups_folder(data_dir))),
        ),
    )
    data_dir.write(
        folder / "users.xml",
        _USERS.format(
            user=USER,
            networks=f"<ip>{LOOPBACK}</ip>" if host == LOOPBACK else anywhere,
            password_hash=hashlib.sha256(ensure_secret(data_dir).encode()).hexdigest(),
            query_memory_bytes=int(memory_cap_bytes * 0.8),
        ),
    )


def server_log(data_dir: DataDir) -> Path:
    """Return the path of the engine's own log; the process's output is in another file."""
    return data_dir.clickhouse_conf / "clickhouse.log"


def backups_folder(data_dir: DataDir) -> Path:
    """Return the only folder that BACKUP and RESTORE may use; it holds a link to the backup while they run."""
    return data_dir.clickhouse_conf / "backups"


def adopt_secret(data_dir: DataDir, file: Path) -> None:
    """Make the content of ``file`` the password, for this and later starts.

    Raises:
        ConfigurationError: The file cannot be read, or its content is not a password of printable ASCII characters.
        DataDirectoryError: The password cannot be written into the data directory.
    """
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"The password of the embedded ClickHouse cannot be read from {file}: {error}.",
            next_step="Name a readable file with --password-file, or leave the option out: a password is made.",
        ) from error
    if len(secret) < _MIN_SECRET_CHARACTERS or not (secret.isascii() and secret.isprintable()):
        raise ConfigurationError(
            f"{file} holds no usable password: expected {_MIN_SECRET_CHARACTERS} or more printable ASCII characters.",
            next_step=f"python -c 'import secrets; print(secrets.token_urlsafe(32))' > {shlex.quote(str(file))}",
        )
    data_dir.write(data_dir.clickhouse_secret, secret)


def ensure_secret(data_dir: DataDir) -> str:
    """Return the password; it is created at the first start and kept, so that clients survive a server restart."""
    if not data_dir.clickhouse_secret.exists():
        data_dir.write(data_dir.clickhouse_secret, secrets.token_urlsafe(32))
    return read_secret(data_dir)


def read_secret(data_dir: DataDir) -> str:
    """Read the password. DataDirectoryError: the file is missing, empty or unreadable."""
    path = data_dir.clickhouse_secret
    try:
        secret = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise DataDirectoryError(
            f"The password of the embedded ClickHouse cannot be read from {path}: {error}.",
            next_step="Run as the user that started the server, or remove the file and start the server again.",
        ) from error
    if not secret:
        raise DataDirectoryError(f"{path} is empty.", next_step="Remove it and start the embedded ClickHouse again.")
    return secret
