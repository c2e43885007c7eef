"""Which of verl's checkpoint folders may be resumed from.

verl writes ``global_step_N`` in place and then a tracker file that is not replaced atomically, so after a kill -9
neither proves that a checkpoint is whole. Ours does: ``COMPLETE`` is written last, flushed and renamed into place,
and a folder without it is never read.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.semconv.errors import JobError

_MARKER: Final = "COMPLETE"
_FOLDER: Final = re.compile(r"global_step_(\d+)")


class Checkpoint(NamedTuple):
    """A whole checkpoint of one job."""

    step: int
    path: Path

    @property
    def weights_path(self) -> Path:
        """The Hugging Face folder that verl wrote into it; GRPO has its actor one level deeper than SFT."""
        nested = self.path / "actor" / "huggingface"
        return nested if nested.is_dir() else self.path / "huggingface"


def mark_complete(checkpoint: Path) -> None:
    """Declare the verl checkpoint folder ``checkpoint`` whole, after everything in it has been written."""
    temporary = checkpoint / f".{_MARKER}.tmp"
    with temporary.open("w") as file:
        os.fsync(file.fileno())
    temporary.rename(checkpoint / _MARKER)


def latest_checkpoint(directory: Path) -> Checkpoint | None:
    """The whole checkpoint with the most steps under ``directory``, or None."""
    return max(_whole(directory), default=None)


def discard_old(directory: Path) -> None:
    """Remove all checkpoints but the newest whole one; what a killed attempt half-wrote goes too."""
    newest = latest_checkpoint(directory)
    for path in directory.glob("global_step_*"):
        if newest is None or path != newest.path:
            shutil.rmtree(path)


def _whole(directory: Path) -> Iterator[Checkpoint]:
    for path in directory.glob("global_step_*"):
        match = _FOLDER.fullmatch(path.name)
        if match is None or not (path / _MARKER).exists():
            continue
        checkpoint = Checkpoint(int(match[1]), path)
        # verl's rotation removes the actor of an old checkpoint and leaves the rest of the folder
        if checkpoint.weights_path.is_dir():
            yield checkpoint


def assemble_model(checkpoint: Checkpoint, base: Path, target: Path) -> Path:
    """Make a Hugging Face folder of the checkpoint's weights and the base model's other files.

    Tokenizer, chat template, generation config and model config are the base's own, byte for byte: training changes
    weights and nothing else, and libraries rewrite the rest on saving.

    Raises:
        JobError: verl's checkpoint has no weights.
    """
    weights = [path for path in checkpoint.weights_path.iterdir() if _is_weights(path)]
    if not any(path.suffix == ".safetensors" for path in weights):
        raise JobError(
            f"The checkpoint {checkpoint.path} of step {checkpoint.step} has no weights: expected *.safetensors in "
            f"{checkpoint.weights_path}.",
            next_step="Read the job's log for what verl said while saving.",
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    others = [path for path in base.iterdir() if path.is_file() and not _is_weights(path)]
    for path in weights + others:
        shutil.copy2(path, target / path.name)
    return target


def _is_weights(path: Path) -> bool:
    return path.suffix in {".safetensors", ".bin"} or path.name.endswith((".safetensors.index.json", ".bin.index.json"))
