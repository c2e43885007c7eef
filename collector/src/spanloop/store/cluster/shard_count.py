"""Refuse a cluster with another number of shards than the store was made with.

The sharding key names a shard by its remainder. With one shard more, a row would no longer be on the shard of the row
that it replaces.
"""

from collections.abc import Callable
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError

from .schema import Cluster

_STATE: Final = "shards"
_STORED: Final = "SELECT DISTINCT toUInt32OrZero(name) AS shards FROM schema_migrations WHERE state = {state:String}"


def check_shards(
    cluster: Cluster, query: Callable[[str, dict[str, object]], pl.DataFrame], insert: Callable[[pl.DataFrame], None]
) -> None:
    """Compare the cluster's number of shards with the stored one, which is stored when it is missing.

    Args:
        cluster: The cluster.
        query: Runs a query with parameters.
        insert: Inserts rows into the journal of the migrations, which a copy leaves out.

    Raises:
        StoreError: The numbers differ.
    """
    stored = query(_STORED, {"state": _STATE})["shards"].to_list()
    if not stored:
        row = {"version": 0, "name": str(cluster.shards), "checksum": "", "state": _STATE, "spanloop_version": ""}
        insert(pl.DataFrame([row], schema_overrides={"version": pl.UInt32}))
    elif stored != [cluster.shards]:
        raise StoreError(
            f"Database {cluster.database!r} was made on {stored[0]} shards; the cluster {cluster.name!r} has "
            f"{cluster.shards}.",
            next_step="Its rows stay on their shards: let the cluster have as many as before, and copy the store into "
            "another database on a cluster with more (spanloop copy --to-cluster).",
        )
