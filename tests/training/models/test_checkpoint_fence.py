"""Test that only the attempt with the newest lease writes checkpoints."""

from pathlib import Path

import pytest

from spanloop.foundation.errors import JobError
from spanloop.training.models.checkpoint_fence import check_claim, claim
from spanloop.training.models.checkpoints import latest_checkpoint, mark_complete


def checkpoint(directory: Path, step: int) -> Path:
    folder = directory / f"global_step_{step}"
    (folder / "huggingface").mkdir(parents=True)
    return folder


def test_a_fenced_off_attempt_neither_begins_nor_completes_a_checkpoint(tmp_path: Path) -> None:
    claim(tmp_path, 3)
    check_claim(tmp_path, 3)
    mark_complete(checkpoint(tmp_path, 1), token=3)
    begun = checkpoint(tmp_path, 2)
    claim(tmp_path, 4)
    with pytest.raises(JobError, match="token 4, got 3"):
        check_claim(tmp_path, 3)
    with pytest.raises(JobError, match="token 4, got 3"):
        mark_complete(begun, token=3)
    with pytest.raises(JobError, match="token 4, got 3"):
        claim(tmp_path, 3)
    newest = latest_checkpoint(tmp_path)
    assert newest is not None
    assert newest.step == 1
    # a restart of the same attempt's training, and the attempt that has the job
    claim(tmp_path, 4)
    mark_complete(begun, token=4)


def test_after_the_job_nobody_writes_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="it has ended"):
        check_claim(tmp_path, 3)
    # a training without a lease has no fence
    check_claim(tmp_path, 0)
