"""Pins: episode revisions that a dataset's manifest names, and that are kept when a newer one replaces them."""

from collections.abc import Iterable

from spanloop.foundation.tables.episodes import PINNED_REVISIONS

from .store import Store


def pin(store: Store, revisions: Iterable[tuple[str, int]]) -> None:
    """Pin revisions, given as (episode id, revision); pinning one again changes nothing.

    Raises:
        StoreError: ClickHouse refused or is unreachable.
    """
    pairs = list(revisions)
    columns: dict[str, list[object]] = {
        "episode_id": [episode_id for episode_id, _ in pairs],
        "revision": [revision for _, revision in pairs],
    }
    store.insert(PINNED_REVISIONS.name, PINNED_REVISIONS.frame(columns))
