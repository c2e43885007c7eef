"""Find out what a server knows about its cluster."""

from collections.abc import Callable
from typing import Final

import polars as pl

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import CLICKHOUSE_CLUSTER_ENV

from .schema import Cluster, Form

_FACTS: Final = """
SELECT
    (SELECT groupUniqArray(cluster) FROM system.clusters) AS names,
    (SELECT count() FROM system.clusters WHERE cluster = {name:String}) AS servers,
    (SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = {name:String}) AS shards,
    (SELECT count() FROM system.tables WHERE database = 'system' AND name = 'zookeeper') AS keepers
"""


def discover_cluster(
    name: str, database: str, *, server: str, is_cloud: bool, query: Callable[[str, dict[str, object]], pl.DataFrame]
) -> Cluster | None:
    """Return the cluster that a server belongs to; None for one server.

    Args:
        name: Name of the cluster as configured; empty for one server.
        database: Name of the database.
        server: The server, for messages.
        is_cloud: Whether the server is ClickHouse Cloud's.
        query: Runs a query with parameters.

    Raises:
        ConfigurationError: The server has no cluster with this name.
    """
    if is_cloud:
        return Cluster(name, database, Form.CLOUD, shards=1, servers=1)
    if not name:
        return None
    facts = query(_FACTS, {"name": name}).row(0, named=True)
    if not facts["servers"]:
        known = ", ".join(map(repr, sorted(facts["names"]))) or "none"
        raise ConfigurationError(
            f"The ClickHouse server at {server} has no cluster {name!r}; it has {known}.",
            next_step=f"Set {CLICKHOUSE_CLUSTER_ENV} to a name in remote_servers of its configuration, or unset it "
            "for one server.",
        )
    form = Form.KEEPER if facts["keepers"] else Form.SERVERS
    return Cluster(name, database, form, shards=int(facts["shards"]), servers=int(facts["servers"]))
