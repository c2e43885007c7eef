"""Erase forgotten episodes from the datasets of jobs.

Invariant: afterwards no file of the job's folder holds a row of the episode, and the manifest says how many are gone.
Such a dataset is evidence of what was trained on and nothing to train on any more: a retry is refused.
"""

import shutil
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl
from pydantic import ValidationError

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import write_atomically
from spanloop.training.jobs.states import JobState

from ..dataset.dataset_objects import synchronise_all
from ..dataset.held_out import HELD_OUT_NAME
from ..dataset.manifest import DATA_NAME, MANIFEST_NAME, Manifest, sha256_of
from ..jobs.paths import ControlPaths, HasPath
from ..jobs.state_machine import FINAL_STATES
from ..jobs.training_ids import job_of
from ..models.checkpoint_objects import CheckpointObjects
from .gate import SCORES_NAME
from .job_api import JobApi
from .monitor.samples import remove_samples

_SCRATCH: Final = ("checkpoints", "model")
_OPEN: Final = frozenset(JobState) - FINAL_STATES


class Erased(NamedTuple):
    """What was erased from one dataset."""

    folder: Path
    episodes: int
    rows: int


def erase_episodes(data_dir: HasPath, folder: Path, episode_ids: AbstractSet[str]) -> list[Erased]:
    """Erase the episodes from the datasets of all jobs.

    Args:
        data_dir: Whose jobs.
        folder: Of the jobs' folders.
        episode_ids: Those of no dataset are nothing to do.

    Returns:
        The datasets that lost something.

    Raises:
        JobError: A job that has not ended trains on one of them, or a manifest cannot be read; nothing was erased.
    """
    root = ControlPaths.of(data_dir).root
    synchronise_all(root, folder)
    affected: list[tuple[Path, Manifest]] = []
    for path in sorted(folder.glob(f"*/{MANIFEST_NAME}")):
        manifest = _read(path)
        if any(episode.episode_id in episode_ids for episode in (*manifest.pinned, *manifest.held_out)):
            affected.append((path.parent, manifest))
    if affected:
        states = {job.id: job.state for job in JobApi(data_dir).list(limit=1_000_000)}
        for _, manifest in affected:
            job_id = job_of(manifest.job_id)
            if states.get(job_id) in _OPEN:
                raise JobError(
                    f"Job {job_id} is {states[job_id]} and trains on what is to be erased.",
                    next_step=f"spanloop jobs cancel {job_id}, or let it end; then run this again.",
                )
    erased = [_erase(place, manifest, episode_ids) for place, manifest in affected]
    synchronise_all(root, folder)
    for each in erased:
        CheckpointObjects(root, each.folder.name, each.folder / "checkpoints", lambda: None).remove()
    return erased


def _read(path: Path) -> Manifest:
    try:
        return Manifest.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, ValueError) as error:
        raise JobError(
            f"{path} cannot be read, so nobody knows whether its dataset holds a copy of what is to be erased.",
            next_step=f"Remove {path.parent}, or move it away; then run this again.",
        ) from error


def _erase(folder: Path, manifest: Manifest, episode_ids: AbstractSet[str]) -> Erased:
    for name in _SCRATCH:
        shutil.rmtree(folder / name, ignore_errors=True)
    # their lines name rows of the dataset by position
    remove_samples(folder)
    data = folder / DATA_NAME
    # scores have no identity of a row, and come from the held-out rows
    (folder / SCORES_NAME).unlink(missing_ok=True)
    rows = sum(_remove_rows(path, episode_ids) for path in (data, folder / HELD_OUT_NAME) if path.exists())
    pinned, held_out = (
        tuple(episode for episode in episodes if episode.episode_id not in episode_ids)
        for episodes in (manifest.pinned, manifest.held_out)
    )
    episodes = len(manifest.pinned) + len(manifest.held_out) - len(pinned) - len(held_out)
    changed = manifest.model_copy(
        update={
            "pinned": pinned,
            "held_out": held_out,
            "data_sha256": sha256_of(data),
            "forgotten_episodes": manifest.forgotten_episodes + episodes,
            "forgotten_rows": manifest.forgotten_rows + rows,
        }
    )
    write_atomically(folder / MANIFEST_NAME, changed.model_dump_json(indent=1))
    return Erased(folder, episodes, rows)


def _remove_rows(path: Path, episode_ids: AbstractSet[str]) -> int:
    """Rewrite the file without the episodes; return how many rows it lost."""
    rows = pl.read_parquet(path)
    remaining = rows.filter(~pl.col("episode_id").is_in(sorted(episode_ids)))
    temporary = path.with_name(f".{path.name}.tmp")
    remaining.write_parquet(temporary)
    temporary.replace(path)
    return rows.height - remaining.height
