"""Data sets: named, versioned lists of episode revisions.

Invariant: a version never changes, except that forgotten episodes leave it, until its data set is deleted. Its
revisions are pinned, so conversion keeps them when newer ones replace them. Of the episodes that are chosen, each is
added or rejected with a reason.
"""

import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.data_sets import DATA_SET_EPISODES, DATA_SETS
from spanloop.foundation.version_names import NAME_PATTERN, VERSION_PATTERN, number_of

from .pinned_revisions import pin
from .store import Store

REFERENCE_PATTERN: Final = rf"{NAME_PATTERN}(@{VERSION_PATTERN})?"
"""``name@v2``, or ``name`` for the newest version."""
ALREADY_IN: Final = "already_in_data_set"
"""Reason of an episode that the newest version has in the same revision."""
UNKNOWN: Final = "unknown_episode"
"""Reason of an id without a current episode."""
_LONGEST_SOURCE: Final = 10_000
_KEY: Final = ("episode_id", "revision")


class DataSet(NamedTuple):
    """One version of a data set."""

    data_set_id: str
    name: str
    version: int
    created_at: datetime
    created_by: str
    source: str
    """The filters, or the selection, that the episodes were added by."""
    comment: str
    stated_episodes: int
    """Episodes when the version was made."""
    added: int
    """Episodes that the version before lacks, or has in another revision."""
    rejected: Mapping[str, int]
    """Reason → episodes that were chosen and not added."""
    episodes: int
    """Episodes that are left; the others were forgotten."""

    @property
    def reference(self) -> str:
        """``name@v2``."""
        return f"{self.name}@v{self.version}"

    @property
    def forgotten(self) -> int:
        """The number of forgotten episodes."""
        return self.stated_episodes - self.episodes


class Addition(NamedTuple):
    """The result of adding episodes: ``added`` plus ``rejected`` is the number of chosen ones."""

    data_set: DataSet
    added: int
    rejected: Mapping[str, int]
    """Reason → episodes."""


def add_to_data_set(
    store: Store,
    name: str,
    episodes: pl.DataFrame | Sequence[str],
    *,
    created_by: str,
    source: str,
    comment: str = "",
) -> Addition:
    """Make the first version of a data set, or the next one, of the newest version's episodes and these.

    An episode that the newest version has in another revision is replaced. Without an episode to add, no version is
    made.

    Args:
        store: The store.
        name: The data set.
        episodes: Current episodes, with the columns of ``data_set_episodes``, or ids.
        created_by: Name of the person.
        source: The filters, or the selection.
        comment: The reason.

    Raises:
        ConfigurationError: The name is invalid, or there is no data set and no episode to make one of.
        StoreError: ClickHouse is unreachable; no version was made. Call it again.
    """
    _check_name(name)
    ids = list(dict.fromkeys(episodes)) if not isinstance(episodes, pl.DataFrame) else []
    frame = episodes if isinstance(episodes, pl.DataFrame) else current_episodes(store, ids)
    newest = max(fetch_data_sets(store, name), key=_version, default=None)
    members = fetch_members(store, newest).select("episode_id", "revision") if newest else frame.select(_KEY).clear()
    fresh = frame.join(members, on=_KEY, how="anti")
    counts = {ALREADY_IN: frame.height - fresh.height, UNKNOWN: max(0, len(ids) - frame.height)}
    rejected = {reason: count for reason, count in counts.items() if count}
    if fresh.is_empty():
        if newest is None:
            raise ConfigurationError(
                f"No episode to make the data set {name!r} of: {rejected or 'nothing matches'}.",
                next_step="Widen the filters, or check the ids.",
            )
        return Addition(newest, 0, rejected)
    new = _draft(name, created_by, source=source, comment=comment, added=fresh.height, rejected=rejected)
    pin(store, fresh.select(_KEY).iter_rows())
    store.insert(DATA_SET_EPISODES.name, fresh.with_columns(data_set_id=pl.lit(new.data_set_id)))
    return Addition(_publish(store, new, newest), fresh.height, rejected)


def remove_from_data_set(
    store: Store, name: str, episode_ids: Collection[str], *, created_by: str, comment: str = ""
) -> DataSet:
    """Make the next version of a data set without some of its episodes; the version before keeps them.

    Raises:
        ConfigurationError: There is no such data set, it lacks one of the episodes, or no episode would be left.
        StoreError: ClickHouse is unreachable.
    """
    newest = find_data_set(store, name)
    members = set(fetch_members(store, newest)["episode_id"].to_list())
    if missing := sorted(set(episode_ids) - members):
        raise ConfigurationError(f"{newest.reference} has no episode {', '.join(missing)}.")
    if members == set(episode_ids):
        raise ConfigurationError(f"No episode of {newest.reference} would be left.", next_step="Keep one of them.")
    source = f"{newest.reference} without {len(set(episode_ids))} episodes"
    new = _draft(newest.name, created_by, source=source, comment=comment)
    return _publish(store, new, newest, without=list(episode_ids))


def delete_data_set(store: Store, name: str) -> int:
    """Delete a data set with all its versions; return their number.

    Its episodes stay, as do the revisions that it pinned: jobs and exports that used it name them too. An interrupted
    call can be repeated.

    Raises:
        ConfigurationError: There is no such data set.
        StoreError: ClickHouse is unreachable.
    """
    _check_name(name)  # a single version is not deleted: the next one would have its number
    versions = fetch_data_sets(store, find_data_set(store, name).name)
    ids = [each.data_set_id for each in versions]
    store.execute("data_set_delete_episodes", data_set_ids=ids)
    store.execute("data_set_delete_versions", data_set_ids=ids)
    return len(versions)


def fetch_data_sets(store: Store, name: str = "") -> list[DataSet]:
    """Return the versions of a data set, or of all, the newest first."""
    return [_data_set(row) for row in store.query("data_set_versions", name=name).iter_rows(named=True)]


def find_data_set(store: Store, reference: str) -> DataSet:
    """Return a version by ``name@v2``, or the newest one by ``name``.

    Raises:
        ConfigurationError: There is no such data set or version.
    """
    name, _, version = reference.partition("@")
    versions = fetch_data_sets(store, name) if re.fullmatch(REFERENCE_PATTERN, reference) else []
    versions.sort(key=_version, reverse=True)
    for each in versions:
        if not version or each.version == number_of(version):
            return each
    known = f"{name} has the versions {', '.join(f'v{each.version}' for each in versions)}" if versions else ""
    raise ConfigurationError(
        f"There is no data set {reference!r}{f'; {known}' if known else ''}.",
        next_step="spanloop dataset list shows all; a reference is a name, or name@v2.",
    )


def fetch_members(store: Store, data_set: DataSet) -> pl.DataFrame:
    """Return the episode revisions of a version, with the columns of ``data_set_episodes``, by group and id."""
    return store.query("data_set_members", data_set_id=data_set.data_set_id)


def current_episodes(store: Store, episode_ids: Sequence[str]) -> pl.DataFrame:
    """Return the current revisions of episodes, with the columns of ``data_set_episodes``; unknown ids have no row."""
    return store.query("data_set_current_episodes", episode_ids=list(episode_ids))


def _draft(
    name: str,
    created_by: str,
    *,
    source: str,
    comment: str,
    added: int = 0,
    rejected: Mapping[str, int] = MappingProxyType({}),
) -> DataSet:
    """Return a version that is not numbered yet."""
    return DataSet(
        data_set_id=uuid.uuid4().hex,
        name=name,
        version=0,
        created_at=datetime.now(UTC),
        created_by=created_by,
        source=source[:_LONGEST_SOURCE],
        comment=comment,
        stated_episodes=0,
        added=added,
        rejected=rejected,
        episodes=0,
    )


def _publish(store: Store, new: DataSet, previous: DataSet | None, *, without: Sequence[str] = ()) -> DataSet:
    """Copy the episodes of the version before, and insert the row that makes the version exist.

    Where another call made that number at the same time, the version becomes the next one, with its episodes too.
    """
    names = [name for name in DataSet._fields if name in DATA_SETS.schema]
    while True:
        if previous is not None:
            ids = {"data_set_id": new.data_set_id, "previous_id": previous.data_set_id}
            store.execute("data_set_carry_over", **ids, without=list(without))
        new = new._replace(version=previous.version + 1 if previous else 1, episodes=fetch_members(store, new).height)
        row: dict[str, object] = {name: getattr(new, name) for name in names}
        store.insert(DATA_SETS.name, DATA_SETS.from_dicts([row]))
        stored = fetch_data_sets(store, new.name)
        for each in stored:
            if each.data_set_id == new.data_set_id:
                return each
        previous = max(stored, key=_version)


def _check_name(name: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise ConfigurationError(
            f"{name!r} is no name of a data set.",
            next_step="Use up to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit.",
        )


def _version(data_set: DataSet) -> int:
    return data_set.version


def _data_set(row: Mapping[str, Any]) -> DataSet:
    rejected = dict(zip(row["reasons"], row["counts"], strict=True))
    return DataSet(**{name: row[name] for name in DataSet._fields if name != "rejected"}, rejected=rejected)
