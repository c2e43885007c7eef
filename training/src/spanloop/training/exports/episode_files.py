"""Write stored episodes as training files: those that a query finds, or those of a data set.

Invariant: the revisions that the manifest names are the ones that were read, and are pinned before.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters.exports import KINDS, ExportOptions, Kind, Manifest, Pinned
from spanloop.converters.exports import export as write_export
from spanloop.store import Store
from spanloop.store.data_sets import DataSet, fetch_members
from spanloop.store.pinned_revisions import pin

_ROWS_AT_ONCE: Final = 5_000
_EPISODES_AT_ONCE: Final = 1_000
_DEFAULTS: Final = ExportOptions()


def export_kinds() -> list[str]:
    """Return the names of the formats."""
    return list(KINDS)


class Query(NamedTuple):
    """Parameters of the query ``export_episodes``."""

    task_ids: Sequence[str]
    task_prefix: str
    policy_version: str
    since: datetime
    until: datetime


def export_query(store: Store, query: Query, kind: str, folder: Path, options: ExportOptions) -> Manifest:
    """Export the current episodes that a query finds, as `export_data_set`."""
    parameters = query._asdict()
    stated = {name: str(value) if isinstance(value, datetime) else value for name, value in parameters.items()}
    return _export(store, _Sources(stated, store.query("export_episodes", **parameters)), kind, folder, options)


def export_data_set(
    store: Store, data_set: DataSet, kind: str, folder: Path, options: ExportOptions = _DEFAULTS
) -> Manifest:
    """Export the episode revisions of a version of a data set.

    Args:
        store: The store.
        data_set: The version.
        kind: A key of ``converters.exports.KINDS``.
        folder: A new folder, or an earlier export, which is replaced.
        options: How the rows are made.

    Raises:
        ConversionError: ``folder`` holds something else.
        StoreError: ClickHouse is unreachable.
    """
    sources = _Sources({"data_set": data_set.reference}, fetch_members(store, data_set), data_set.data_set_id)
    return _export(store, sources, kind, folder, options)


class _Sources(NamedTuple):
    """The episodes of an export, as the manifest states them."""

    query: Mapping[str, object]
    episodes: pl.DataFrame
    data_set_id: str = ""


def _export(store: Store, sources: _Sources, kind: str, folder: Path, options: ExportOptions) -> Manifest:
    groups = _batches(sources.episodes)
    pinned = [episode for group in groups for episode in group]
    pin(store, pinned)
    batches = _load_batches(store, KINDS[kind], groups, sources.data_set_id)
    return write_export(kind, KINDS[kind], batches, folder, query=sources.query, episodes=pinned, options=options)


def _batches(episodes: pl.DataFrame) -> list[list[Pinned]]:
    """Return the episodes, which are sorted by group, in batches of complete groups whose rows fit into memory."""
    batches: list[list[Pinned]] = []
    group, rows = "", 0
    for episode_id, revision, group_id, steps in episodes.select(
        "episode_id", "revision", "group_id", "step_count"
    ).iter_rows():
        is_full = rows >= _ROWS_AT_ONCE or (batches and len(batches[-1]) >= _EPISODES_AT_ONCE)
        if not batches or (is_full and group_id != group):
            batches.append([])
            rows = 0
        batches[-1].append(Pinned(episode_id, revision))
        group, rows = group_id, rows + steps
    return batches


def _load_batches(
    store: Store, kind: Kind, groups: Sequence[Sequence[Pinned]], data_set_id: str
) -> Iterator[pl.DataFrame]:
    for group in groups:
        yield store.query(
            f"export_{kind.source}",
            episode_ids=[episode.episode_id for episode in group],
            revisions=[episode.revision for episode in group],
            data_set_id=data_set_id,
        )
