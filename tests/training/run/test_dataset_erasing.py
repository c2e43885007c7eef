"""Forgetting an episode takes its rows out of every dataset, and says so."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.training.dataset.manifest import Count, Manifest, PinnedEpisode, load_manifest, sha256_of
from spanloop.training.run.dataset_erasing import Erased, erase_episodes


def dataset(data_dir: DataDir, job_id: str, *episodes: str) -> Path:
    """A dataset with two rows of each episode, and scratch beside it."""
    folder = data_dir.jobs / job_id
    (folder / "checkpoints").mkdir(parents=True)
    data = folder / "dataset.parquet"
    pl.DataFrame(
        {"episode_id": [each for each in episodes for _ in range(2)], "prompt_token_ids": [[1]] * 2 * len(episodes)}
    ).write_parquet(data)
    count = Count(accepted=len(episodes), rejected={})
    manifest = Manifest(
        job_id=job_id, kind="sft", created_at=datetime.now(UTC), base="tiny@v1", query="q", query_parameters={},
        rows=count, episodes=count, groups=count, prompt_groups=0, temperature=None, longest_prompt_tokens=1,
        longest_response_tokens=1, longest_row_tokens=2, mean_reward=None, data_sha256=sha256_of(data),
        pinned=tuple(PinnedEpisode(episode_id=each, revision=1) for each in episodes),
    )  # fmt: skip
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return folder


def test_its_rows_are_gone_and_the_manifest_says_so(data_dir: DataDir) -> None:
    first, other = dataset(data_dir, "j1", "alice", "bob"), dataset(data_dir, "j2", "bob")
    (first / "samples-1.jsonl").write_text('{"step": 1, "sample": [0]}')
    before = (other / "dataset.parquet").read_bytes()
    assert erase_episodes(data_dir, data_dir.jobs, {"alice", "nobody"}) == [Erased(first, 1, 2)]
    manifest = load_manifest(first)
    assert manifest is not None
    assert (manifest.forgotten_episodes, manifest.forgotten_rows) == (1, 2)
    assert [each.episode_id for each in manifest.pinned] == ["bob"]
    assert pl.read_parquet(first / "dataset.parquet")["episode_id"].to_list() == ["bob", "bob"]
    assert sorted(path.name for path in first.iterdir()) == ["dataset.parquet", "manifest.json"]
    assert not [path for path in first.iterdir() if b"alice" in path.read_bytes()]
    assert (other / "dataset.parquet").read_bytes() == before
    assert erase_episodes(data_dir, data_dir.jobs, {"alice"}) == []


def test_a_manifest_that_cannot_be_read_is_said(data_dir: DataDir) -> None:
    (dataset(data_dir, "j1", "alice") / "manifest.json").write_text("{")
    with pytest.raises(JobError, match="nobody knows whether its dataset holds a copy"):
        erase_episodes(data_dir, data_dir.jobs, {"alice"})


def test_rows_that_a_gate_holds_out_are_erased_too(data_dir: DataDir) -> None:
    folder = dataset(data_dir, "j1.2", "bob")
    pl.DataFrame({"episode_id": ["alice", "carol"], "prompt_token_ids": [[1]] * 2}).write_parquet(
        folder / "held_out.parquet"
    )
    (folder / "held_out_logprobs.parquet").write_bytes(b"scores")
    manifest = load_manifest(folder)
    assert manifest is not None
    held_out = tuple(PinnedEpisode(episode_id=each, revision=1) for each in ("alice", "carol"))
    (folder / "manifest.json").write_text(manifest.model_copy(update={"held_out": held_out}).model_dump_json())
    assert erase_episodes(data_dir, data_dir.jobs, {"alice"}) == [Erased(folder, 1, 1)]
    assert not [path for path in folder.iterdir() if b"alice" in path.read_bytes()]
    assert not (folder / "held_out_logprobs.parquet").exists()
    erased = load_manifest(folder)
    assert erased is not None
    assert [each.episode_id for each in erased.held_out] == ["carol"]
    assert (erased.forgotten_episodes, erased.forgotten_rows) == (1, 1)
