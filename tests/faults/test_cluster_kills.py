"""Servers of a ClickHouse cluster are killed (-9) while a collector inserts through them."""

from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV
from spanloop.store import Store

from ..clickhouse_cluster import NAME, ClickHouseCluster
from .ledger import Ledger
from .support import SMALL_SPOOL, Scene, Senders, wait_for

DATABASE = "killed"


def wait_for_acceptance(senders: Senders, requests: int = 30) -> None:
    """Wait until the collector has accepted further requests."""
    enough = senders.statuses[200] + requests
    wait_for(lambda: senders.statuses[200] >= enough, "accepted requests")


@pytest.mark.slow
@pytest.mark.parametrize("copies", [1, 2])
def test_kill_9_of_servers_neither_loses_nor_doubles_an_acknowledged_span(  # noqa: PLR0917 - fixtures
    copies: int,
    data_dir: DataDir,
    tmp_path: Path,
    print_at_end: Callable[[str], None],
    times: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(CLICKHOUSE_CLUSTER_ENV, NAME)
    with (
        ClickHouseCluster(tmp_path / "cluster", copies=copies) as cluster,
        Ledger(tmp_path / "ledger") as ledger,
    ):
        Store.open(cluster.address(DATABASE)).close()
        scene = Scene(data_dir, ledger, cluster.address(DATABASE), print_at_end)
        try:
            collector = scene.launch(*SMALL_SPOOL, url=cluster.urls(DATABASE))
            assert collector.is_listening()
            kills = 6 * times
            with Senders(collector.url, ledger, pause_s=0.01, is_retrying=True) as senders:
                for server in islice(cycle(cluster.servers), kills):
                    wait_for_acceptance(senders)
                    server.kill()
                    server.start()
                    server.wait()
            collector.finish()
            settled = scene.settle(f"{kills}-kills-of-a-cluster-with-{copies}-copies")
            assert settled.refused == 0
        finally:
            scene.close()
