"""Records of what each step did with each row: from files into the store, once, and anonymous when forgotten."""

import json
from pathlib import Path

import polars as pl
import pytest

from spanloop.foundation.errors import StoreError
from spanloop.store import Store
from spanloop.training.run.monitor.samples import SampleWriter, read_rows, samples_path

NUMBERS = ("advantage", "old_logprob", "new_logprob", "importance_mean", "importance_max", "loss")


def dataset(folder: Path) -> Path:
    """Three rows: two of the first episode, of which the second has a masked step, and one of an earlier converter."""
    rows = {
        "episode_id": ["a", "a", "b"],
        "revision": [7, 7, 8],
        "trajectory_id": ["a/0", "a/1", "b/0"],
        "row_number": [0, 1, 0],
        "group_id": ["g", "g", "h"],
        "policy_version": ["m@v1", "m@v1", "m@v2"],
        "prompt_token_ids": [[1, 2], [1, 2, 3], [1]],
        "response_token_ids": [[4, 5], [4, 5, 6, 7], [4]],
        "loss_mask": [[1, 1], [0, 0, 0, 1], [1]],
        "sampled_steps": [[0], [1, 2], []],
        "sampled_starts": [[0], [0, 3], []],
        "sampled_ends": [[2], [2, 4], []],
        "age_versions": [1, 1, None],
        "age_days": [2.0, 2.0, 5.0],
        "distinct_2": [1.0, None, None],
        "base_loss": [0.5, 0.25, None],
        "pass_rate": [0.5, 0.5, 1.0],
    }
    schema: dict[str, pl.DataType] = {"age_versions": pl.UInt32(), "sampled_steps": pl.List(pl.UInt32)}
    pl.DataFrame(rows, schema_overrides=schema).write_parquet(folder / "dataset.parquet")
    return folder


def append(folder: Path, attempt: int, step: int, samples: list[int], value: float, *, is_sft: bool = False) -> None:
    names = ("loss",) if is_sft else NUMBERS
    columns = {name: [value] * len(samples) for name in names}
    line = {"step": step, "sample": samples, "tokens": [3] * len(samples), **columns}
    with samples_path(folder, attempt).open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_a_row_names_the_steps_that_it_trains(tmp_path: Path) -> None:
    rows = read_rows(dataset(tmp_path))
    assert rows["trained_steps"].to_list() == [[0], [2], []]
    assert rows["sample"].to_list() == [0, 1, 2]


def test_each_row_of_a_step_is_stored_once_and_a_repeated_step_is_the_newest_attempts(
    store: Store, tmp_path: Path
) -> None:
    dataset(tmp_path)
    append(tmp_path, 1, 1, [0, 1], 0.5)
    writer = SampleWriter(store, "job", "grpo", tmp_path)
    ages = writer.poll()
    assert [(age.step, age.values["rows/age_days/mean"], age.values["rows/age_versions/max"]) for age in ages] == [
        (1, 2.0, 1.0)
    ]
    append(tmp_path, 1, 2, [1, 2], 0.5)
    assert writer.poll()[0].values == {
        "rows/age_days/mean": 3.5, "rows/age_days/max": 5.0, "rows/age_versions/mean": 1.0, "rows/age_versions/max": 1.0
    }  # fmt: skip
    # killed and resumed from step 1: step 2 is done again, with another row; everything is sent again
    append(tmp_path, 3, 2, [0, 1], 0.25)
    SampleWriter(store, "job", "grpo", tmp_path).poll()
    stored = store.query("training_samples", job_id="job")
    counted = stored.select("step", "attempt", "sample", "loss", "episode_id", "trained_steps").rows()
    assert counted == [
        (1, 1, 0, 0.5, "a", [0]), (1, 1, 1, 0.5, "a", [2]), (2, 3, 0, 0.25, "a", [0]), (2, 3, 1, 0.25, "a", [2])
    ]  # fmt: skip
    assert stored["new_logprob"].null_count() == 0
    store.execute("store_forget_training_samples", episode_ids=["a"])
    forgotten = store.query("training_samples", job_id="job")
    # nothing tells whose they were, and what the first attempt did at step 2 does not come back
    assert forgotten.select("episode_id", "trajectory_id", "group_id").unique().rows() == [("", "", "")]
    assert forgotten["loss"].to_list() == stored["loss"].to_list()


def test_the_metrics_of_a_row_are_stored_with_it(store: Store, tmp_path: Path) -> None:
    append(dataset(tmp_path), 1, 1, [1, 2], 0.5)
    SampleWriter(store, "job", "grpo", tmp_path).poll()
    metrics = ("prompt_tokens", "response_tokens", "distinct_2", "base_loss", "pass_rate")
    assert store.query("training_samples", job_id="job").select(metrics).rows() == [
        (3, 4, None, 0.25, 0.5),
        (1, 1, None, None, 1.0),
    ]


def test_sft_has_a_loss_and_no_advantage(store: Store, tmp_path: Path) -> None:
    append(dataset(tmp_path), 1, 1, [2], 1.5, is_sft=True)
    SampleWriter(store, "job", "sft", tmp_path).poll()
    row = store.query("training_samples", job_id="job").row(0, named=True)
    names = ("kind", "loss", "advantage", "age_versions", "weight")
    assert [row[name] for name in names] == ["sft", 1.5, None, None, 1]


def test_an_unreachable_store_loses_no_record(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(dataset(tmp_path), 1, 1, [0], 0.5)
    writer = SampleWriter(store, "job", "grpo", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(store, "insert", _refuse)
        assert len(writer.poll()) == 1
    assert writer.poll() == []
    assert store.query("training_samples", job_id="job").height == 1


def _refuse(*_: object) -> None:
    raise StoreError("unreachable")
