from pathlib import Path

import pytest

from spanloop.foundation.errors import JobError
from spanloop.training.models.checkpoints import (
    Checkpoint,
    assemble_model,
    discard_old,
    latest_checkpoint,
    mark_complete,
)


def make(directory: Path, step: int, *, nested: bool = True, complete: bool = True) -> Path:
    folder = directory / f"global_step_{step}"
    weights = folder / "actor" / "huggingface" if nested else folder / "huggingface"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(b"weights %d" % step)
    (weights / "tokenizer.json").write_text("rewritten by a library")
    if complete:
        mark_complete(folder)
    return folder


def test_a_folder_without_the_marker_is_never_resumed_from(tmp_path: Path) -> None:
    make(tmp_path, 9)
    make(tmp_path, 10, complete=False)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    assert latest_checkpoint(tmp_path) == Checkpoint(9, tmp_path / "global_step_9")


def test_steps_are_numbers_and_not_text(tmp_path: Path) -> None:
    make(tmp_path, 9)
    make(tmp_path, 10, nested=False)
    found = latest_checkpoint(tmp_path)
    assert found is not None
    assert found.step == 10


def test_only_the_newest_whole_checkpoint_is_kept(tmp_path: Path) -> None:
    make(tmp_path, 1)
    make(tmp_path, 2)
    make(tmp_path, 3, complete=False)
    discard_old(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["global_step_2"]


def test_what_rotation_left_over_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "global_step_3").mkdir()
    mark_complete(tmp_path / "global_step_3")
    assert latest_checkpoint(tmp_path) is None
    assert latest_checkpoint(tmp_path / "nowhere") is None


@pytest.mark.parametrize("nested", [True, False])
def test_a_model_is_new_weights_and_the_base_s_own_files(tmp_path: Path, *, nested: bool) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"old")
    (base / "tokenizer.json").write_text("the base's")
    checkpoint = Checkpoint(2, make(tmp_path, 2, nested=nested))
    stale = tmp_path / "model" / "stale"
    stale.parent.mkdir()
    stale.touch()
    model = assemble_model(checkpoint, base, tmp_path / "model")
    assert {path.name: path.read_text() for path in model.iterdir()} == {
        "model.safetensors": "weights 2",
        "tokenizer.json": "the base's",
    }


def test_a_checkpoint_without_weights_is_an_error(tmp_path: Path) -> None:
    folder = make(tmp_path, 1)
    (folder / "actor" / "huggingface" / "model.safetensors").unlink()
    with pytest.raises(JobError, match="no weights"):
        assemble_model(Checkpoint(1, folder), tmp_path, tmp_path / "model")
