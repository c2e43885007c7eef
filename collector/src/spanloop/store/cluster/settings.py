"""Settings of every statement on a cluster, and the text of a query that reads system tables.

Invariant: a statement either concerns all shards or fails. All servers read and write the same copy of a shard, the
first one that answers in the order of the configuration; so a row that was inserted is seen by the next query. A copy
that lags by more than `STALE_AFTER_S` is not read. The pipeline reads what arrived during a longer time again, so it
misses no row that a copy gets late.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from .schema import Cluster, Form

STALE_AFTER_S: Final = 10
_SETTINGS: Final = {
    # A subquery on another table runs once, and its result goes to all shards, unless the query's comment says "local".
    "distributed_product_mode": "global",
    # Without it ClickHouse 26.9 evaluates IN within such a subquery against a set that is not built, and finds no row.
    "prefer_global_in_and_join": "1",
    # An INSERT is answered after all shards have stored their rows, with the token of the whole block.
    "distributed_foreground_insert": "1",
    # Otherwise INSERT … SELECT from one Distributed table into another would leave each row on its shard.
    "parallel_distributed_insert_select": "0",
    "skip_unavailable_shards": "0",
    "load_balancing": "in_order",
    "prefer_localhost_replica": "0",
    "max_replica_delay_for_distributed_queries": str(STALE_AFTER_S),
    "fallback_to_stale_replicas_for_distributed_queries": "0",
}
_KEEPER_SETTINGS: Final = {
    # Do not wait for servers that are down, as far as ClickHouse knows; they run the statement when they are back.
    "distributed_ddl_output_mode": "throw_only_active",
    # now() in a mutation is one value for all copies.
    "mutations_execute_nondeterministic_on_initiator": "1",
}
_CLOUD_SETTINGS: Final = {"select_sequential_consistency": "1"}
_SYSTEM_TABLE: Final = re.compile(r"\bFROM (system\.\w+)")


def cluster_settings(cluster: Cluster, *, timeout_s: int) -> Mapping[str, str]:
    """Return the settings of every statement, which may take ``timeout_s`` seconds."""
    if cluster.form is Form.CLOUD:
        return MappingProxyType(_CLOUD_SETTINGS)
    if cluster.form is Form.SERVERS:
        return MappingProxyType(_SETTINGS)
    return MappingProxyType({**_SETTINGS, **_KEEPER_SETTINGS, "distributed_ddl_task_timeout": str(timeout_s)})


def cluster_text(sql: str, cluster: Cluster, *, of_all_servers: bool = False) -> str:
    """Return a query that reads the system tables of one server of each shard, or of all servers."""
    if cluster.form is Form.CLOUD:
        return sql
    function = "clusterAllReplicas" if of_all_servers else "cluster"
    return _SYSTEM_TABLE.sub(rf"FROM {function}('{cluster.name}', \1)", sql)
