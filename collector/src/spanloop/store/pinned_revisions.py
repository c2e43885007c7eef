"""Pins: episode revisions that a dataset's manifest names, and that are kept when a newer one replaces them."""

from collections.abc import Iterable

import polars as pl

from .store import Store


def pin(store: Store, revisions: Iterable[tuple[str, int]]) -> None:
    """Pin revisions, given as (episode id, revision); pinning one again changes nothing.

    Raises:
        StoreError: ClickHouse refused or is unreachable.
    """
    schema = {"episode_id": pl.String, "revision": pl.UInt64}
    store.insert("pinned_revisions", pl.DataFrame(list(revisions), schema=schema, orient="row"))
