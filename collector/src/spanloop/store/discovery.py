"""Find the ClickHouse server and connect: ``SPANLOOP_CLICKHOUSE_URL`` first, else the embedded server."""

import os
from dataclasses import replace
from typing import Final

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.config import USER, read_secret
from spanloop.embedded_clickhouse.lock import is_locked
from spanloop.foundation.errors import AlreadyRunningError, ConfigurationError, NotRunningError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV, CLICKHOUSE_URL_ENV, read_setting

from .client import Address
from .store import Store

RETENTION_STATEMENTS: Final = {
    "otel_traces": "store_retain_spans",
    "otel_logs": "store_retain_logs",
    "log_summaries": "store_retain_log_summaries",
    "trace_summaries": "store_retain_trace_summaries",
}
"""Table → the named statement that sets its retention."""
_SOURCES: Final = {"log_summaries": "otel_logs", "trace_summaries": "otel_traces"}


class _OwningStore(Store):
    """A store that owns its embedded server and stops it on close."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.server: EmbeddedClickHouse | None = None

    def close(self) -> None:
        super().close()
        if self.server is not None:
            self.server.stop()


def connect(data_dir: DataDir, *, start: bool = False) -> Store:
    """Connect to the store of ``data_dir``, migrate it, and extend its retention to tables that a migration added.

    Args:
        data_dir: The data directory of the embedded server; ignored when ``SPANLOOP_CLICKHOUSE_URL`` is set.
        start: Start the embedded server if none runs, and stop it when the store is closed.

    Raises:
        NotRunningError: No URL is set, no embedded server runs, and ``start`` is False.
        ConfigurationError: The URL is invalid.
        DataDirectoryError: The data directory is not usable.
        StoreError: ClickHouse is unreachable, or its schema is not spanloop's.
    """
    store = _open(data_dir, start=start)
    try:
        complete_retention(store)
    except BaseException:
        store.close()
        raise
    return store


def server_address(data_dir: DataDir) -> Address:
    """Return the address of the server that runs; it raises as `connect`, except for the schema."""
    address = _running_address(data_dir)
    if address is None:
        raise NotRunningError(
            f"No ClickHouse runs for the data directory {data_dir.path}.",
            next_step=f"Start it with: spanloop up --data-dir {data_dir.path}; or set {CLICKHOUSE_URL_ENV}.",
        )
    return address


def configured_address() -> Address | None:
    """Return the address of the environment's ClickHouse, of one server or of a cluster; None without a URL.

    Raises:
        ConfigurationError: A URL is invalid, or a cluster is named without a URL.
    """
    url, cluster = read_setting(CLICKHOUSE_URL_ENV), os.environ.get(CLICKHOUSE_CLUSTER_ENV, "")
    if url:
        return Address.parse(url, cluster=cluster)
    if cluster:
        raise ConfigurationError(
            f"{CLICKHOUSE_CLUSTER_ENV} names the cluster {cluster!r}, and {CLICKHOUSE_URL_ENV} names no server of it.",
            next_step=f"Set {CLICKHOUSE_URL_ENV} to one or more of its servers, or unset {CLICKHOUSE_CLUSTER_ENV}.",
        )
    return None


def _running_address(data_dir: DataDir) -> Address | None:
    if (address := configured_address()) is not None:
        return address
    data_dir.open()
    # After a crash another program can have the process id in the run file: only the lock proves that the server runs.
    is_running = data_dir.running("clickhouse") is not None and is_locked(data_dir)
    return embedded_address(data_dir) if is_running else None


def _open(data_dir: DataDir, *, start: bool) -> Store:
    if not start or _running_address(data_dir) is not None:
        return Store.open(server_address(data_dir))
    server = EmbeddedClickHouse(data_dir)
    try:
        server.start()
    except AlreadyRunningError:
        server.wait_until_running()
        return Store.open(embedded_address(data_dir))
    try:
        store = _OwningStore.open(embedded_address(data_dir))
    except BaseException:
        server.stop()
        raise
    store.server = server
    return store


def embedded_address(data_dir: DataDir) -> Address:
    """Return the address of the running embedded server. NotRunningError: no embedded server runs."""
    service = data_dir.running("clickhouse")
    if service is None:
        raise NotRunningError(f"No ClickHouse runs for the data directory {data_dir.path}.")
    return replace(Address.parse(service.url), user=USER, password=read_secret(data_dir))


def complete_retention(store: Store) -> None:
    """Give each summary table, which a migration can add later, the retention of its source table."""
    days = retention_days(store)
    for table, source in _SOURCES.items():
        if source in days and days.get(table) != days[source]:
            store.execute(RETENTION_STATEMENTS[table], days=days[source])


def retention_days(store: Store) -> dict[str, int]:
    """Return the retention in days by table, for tables that have one."""
    return {str(table): int(days) for table, days in store.query("store_retention").iter_rows()}
