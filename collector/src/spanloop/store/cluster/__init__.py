"""The store's second form: the same tables, spread over the shards of a ClickHouse cluster."""

from .discover import discover_cluster
from .schema import Cluster, Form, cluster_statements, is_schema_statement
from .settings import cluster_settings, cluster_text
from .shard_count import check_shards
from .sharding import SHARD_SUFFIX, SHARDINGS, shard_table

__all__ = [
    "SHARDINGS", "SHARD_SUFFIX", "Cluster", "Form", "check_shards", "cluster_settings", "cluster_statements",
    "cluster_text", "discover_cluster", "is_schema_statement", "shard_table",
]  # fmt: skip
