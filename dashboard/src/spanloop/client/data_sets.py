"""Data sets: those that people collected, and those that jobs trained on, from the manifests in their folders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import polars as pl

from spanloop.foundation.errors import JobError
from spanloop.store import Store
from spanloop.store.data_sets import fetch_data_sets
from spanloop.training.dataset.manifest import MANIFEST_NAME, Manifest, load_manifest

_Schema: TypeAlias = dict[str, pl.DataType | type[pl.DataType]]
COLLECTED_SCHEMA: Final[_Schema] = {
    "data_set": pl.String,
    "name": pl.String,
    "version": pl.UInt32,
    "created_at": pl.Datetime("us", "UTC"),
    "created_by": pl.String,
    "episodes": pl.UInt64,
    "added": pl.UInt64,
    "rejected_episodes": pl.UInt64,
    "forgotten_episodes": pl.UInt64,
    "source": pl.String,
    "comment": pl.String,
}
TRAINED_SCHEMA: Final[_Schema] = {
    "job": pl.String,
    "data_set": pl.String,
    "kind": pl.String,
    "base": pl.String,
    "created_at": pl.Datetime("us", "UTC"),
    "rows": pl.Int64,
    "rejected_rows": pl.Int64,
    "episodes": pl.Int64,
    "rejected_episodes": pl.Int64,
    "groups": pl.Int64,
    "pairs": pl.Int64,
    "mean_reward": pl.Float64,
    "longest_row_tokens": pl.Int64,
    "forgotten_episodes": pl.Int64,
    "data_sha256": pl.String,
}
PINNED_SCHEMA: Final = pl.Schema({"episode_id": pl.String, "revision": pl.UInt64, "is_held_out": pl.Boolean})


def collected(store: Store) -> pl.DataFrame:
    """Return a row for each version of each collected data set, the newest first."""
    rows = [
        (
            each.reference,
            each.name,
            each.version,
            each.created_at,
            each.created_by,
            each.episodes,
            each.added,
            sum(each.rejected.values()),
            each.forgotten,
            each.source,
            each.comment,
        )
        for each in fetch_data_sets(store)
    ]
    return pl.DataFrame(rows, schema=COLLECTED_SCHEMA, orient="row")


def trained(jobs: Path) -> pl.DataFrame:
    """Return a row for each job below the folder of jobs that has data, the newest first; damaged ones are left out."""
    rows = [_row(manifest) for manifest in _manifests(jobs)]
    return pl.DataFrame(rows, schema=TRAINED_SCHEMA).sort("created_at", "job", descending=[True, False])


def pinned_episodes(jobs: Path, job: str) -> pl.DataFrame:
    """Return the episode revisions that a job trained on.

    Raises:
        JobError: There is no such job with data, or its manifest is damaged.
    """
    manifest = load_manifest(jobs / job) if Path(job).name == job else None
    if manifest is None:
        raise JobError(f"There is no job {job!r} with data in {jobs}.", next_step="Client.training_data() lists them.")
    rows = [
        (each.episode_id, each.revision, is_held_out)
        for is_held_out, members in ((False, manifest.pinned), (True, manifest.held_out))
        for each in members
    ]
    return pl.DataFrame(rows, schema=PINNED_SCHEMA, orient="row")


def _manifests(jobs: Path) -> Iterator[Manifest]:
    for file in sorted(jobs.glob(f"*/{MANIFEST_NAME}")):
        try:
            manifest = load_manifest(file.parent)
        except JobError:  # the job reports its damaged data set as its error
            continue
        if manifest is not None:
            yield manifest


def _row(manifest: Manifest) -> dict[str, Any]:
    return {
        "job": manifest.job_id,
        "data_set": manifest.data_set,
        "kind": manifest.kind,
        "base": manifest.base,
        "created_at": manifest.created_at,
        "rows": manifest.rows.accepted,
        "rejected_rows": sum(manifest.rows.rejected.values()),
        "episodes": manifest.episodes.accepted,
        "rejected_episodes": sum(manifest.episodes.rejected.values()),
        "groups": manifest.groups.accepted,
        "pairs": manifest.pairs,
        "mean_reward": manifest.mean_reward,
        "longest_row_tokens": manifest.longest_row_tokens,
        "forgotten_episodes": manifest.forgotten_episodes,
        "data_sha256": manifest.data_sha256,
    }
