"""A cluster of two shards, and the same rows on it and on one server."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spanloop.store import Store
from spanloop.store.client import Address

from ...clickhouse_cluster import ClickHouseCluster
from ...databases import ReusedDatabases
from ...generated_rows import fill


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseCluster]:
    """Two shards of one server each. Tests that kill a server start servers of their own."""
    with ClickHouseCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def sharded_store(cluster: ClickHouseCluster) -> Iterator[Store]:
    """A migrated store on the cluster, which tests share: they use ids of their own."""
    with Store.open(cluster.address("shared")) as store:
        yield store


@pytest.fixture(scope="module")
def stores(
    clickhouse: Address, databases: ReusedDatabases, cluster: ClickHouseCluster
) -> Iterator[tuple[Store, Store]]:
    """One server's store and a cluster's, filled with the same rows, which tests only read."""
    name = databases.take()
    with Store(replace(clickhouse, database=name)) as single, Store.open(cluster.address(name)) as sharded:
        for store in (single, sharded):
            fill(store)
        yield single, sharded
    databases.give_back(name)
