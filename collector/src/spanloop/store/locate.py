"""How every part of spanloop finds its ClickHouse: a given URL first, else the data directory's embedded server."""

import os
from dataclasses import replace

from spanloop.datadir import DataDir
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.embedded_clickhouse.config import USER, read_secret
from spanloop.embedded_clickhouse.lock import is_claimed
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import AlreadyRunningError, NotRunningError

from .client import Address
from .store import Store
from .summary_retention import complete_retention


class _OwningStore(Store):
    """A store that stops, when it is closed, the server that was started for it."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.server: EmbeddedClickHouse | None = None

    def close(self) -> None:
        super().close()
        if self.server is not None:
            self.server.stop()


def connect(data_dir: DataDir, *, start: bool = False) -> Store:
    """Connect to the store of ``data_dir``, migrate it, and let its retention cover what a migration has added.

    Args:
        data_dir: Where the embedded server announces itself. Not looked at when ``SPANLOOP_CLICKHOUSE_URL`` is set.
        start: Start the embedded server if it does not run, for as long as the store is open.

    Raises:
        NotRunningError: No URL is set, no embedded server runs, and ``start`` is False.
        ConfigurationError: The URL is not usable.
        DataDirectoryError: The data directory is not usable.
        StoreError: ClickHouse is out of reach, or its schema is not ours.
    """
    store = _opened(data_dir, start=start)
    try:
        complete_retention(store)
    except BaseException:
        store.close()
        raise
    return store


def _opened(data_dir: DataDir, *, start: bool) -> Store:
    if url := os.environ.get(CLICKHOUSE_URL_ENV):
        return Store.open(Address.parse(url))
    data_dir.open()
    # After a crash the process id in a run file can be another program's: only who holds the lock is the server.
    if data_dir.running("clickhouse") is not None and is_claimed(data_dir):
        return Store.open(embedded_address(data_dir))
    if not start:
        raise NotRunningError(
            f"No ClickHouse runs for the data directory {data_dir.path}.",
            next_step=f"Start it with: spanloop up --data-dir {data_dir.path}; or set {CLICKHOUSE_URL_ENV}.",
        )
    server = EmbeddedClickHouse(data_dir)
    try:
        server.start()
    except AlreadyRunningError:
        server.wait_for_other()
        return Store.open(embedded_address(data_dir))
    try:
        store = _OwningStore.open(embedded_address(data_dir))
    except BaseException:
        server.stop()
        raise
    store.server = server
    return store


def embedded_address(data_dir: DataDir) -> Address:
    """The address of the running embedded server.

    Raises:
        NotRunningError: None announced itself.
    """
    running = data_dir.running("clickhouse")
    if running is None:
        raise NotRunningError(f"No ClickHouse runs for the data directory {data_dir.path}.")
    return replace(Address.parse(running.url), user=USER, password=read_secret(data_dir))
