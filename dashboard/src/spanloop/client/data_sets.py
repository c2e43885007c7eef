"""Data sets that exist: what jobs trained on, from the manifests in their folders."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import polars as pl

from spanloop.foundation.errors import JobError
from spanloop.training.dataset.manifest import MANIFEST_NAME, Manifest, load_manifest

SCHEMA: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
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


def data_sets(jobs: Path) -> pl.DataFrame:
    """Return a row for each data set below the folder of jobs, the newest first; damaged ones are left out."""
    rows = [_row(manifest) for manifest in _manifests(jobs)]
    return pl.DataFrame(rows, schema=SCHEMA).sort("created_at", "data_set", descending=[True, False])


def pinned_episodes(jobs: Path, data_set: str) -> pl.DataFrame:
    """Return the episode revisions of a data set.

    Raises:
        JobError: There is no data set of this name, or its manifest is damaged.
    """
    manifest = load_manifest(jobs / data_set) if Path(data_set).name == data_set else None
    if manifest is None:
        raise JobError(f"There is no data set {data_set!r} in {jobs}.", next_step="Client.data_sets() lists them.")
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
        "data_set": manifest.job_id,
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
