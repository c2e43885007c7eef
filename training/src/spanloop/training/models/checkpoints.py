"""Complete verl checkpoints: mark, find, discard, and assemble a model folder from one.

verl writes ``global_step_N`` in place and then a tracker file that is not replaced atomically, so after a kill -9
neither proves that a checkpoint is complete. The marker ``COMPLETE`` does: it is written last, fsynced and renamed
into place, and a folder without it is never read.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import JobError
from spanloop.foundation.trained_logprobs import TRAINED_LOGPROBS_FILE

from .checkpoint_fence import NO_FENCE, check_claim
from .files.lora_adapter import read_adapter, read_checkpoint_adapter, stack, write_adapter
from .files.lora_merge import merge_checkpoint
from .files.weights import check_weights

_MARKER: Final = "COMPLETE"
_FOLDER: Final = re.compile(r"global_step_(\d+)")


class KeptAdapter(NamedTuple):
    """What a LoRA adapter that is not merged belongs to."""

    base: str
    """The ``name@version`` with the weights that it updates."""
    merged: Path | None = None
    """The folder of the adapter that was merged into these weights before training, which the new one includes."""


class Checkpoint(NamedTuple):
    """A complete checkpoint of one job."""

    step: int
    path: Path

    @property
    def weights_path(self) -> Path:
        """The Hugging Face folder in the checkpoint; with a policy gradient it is in the actor's folder."""
        nested = self.path / "actor" / "huggingface"
        return nested if nested.is_dir() else self.path / "huggingface"


def mark_complete(checkpoint: Path, *, token: int = NO_FENCE) -> None:
    """Mark the verl checkpoint folder ``checkpoint`` as complete, after all its files were written.

    Raises:
        JobError: The lease with ``token`` is lost.
    """
    check_claim(checkpoint.parent, token)
    temporary = checkpoint / f".{_MARKER}.tmp"
    with temporary.open("w") as file:
        os.fsync(file.fileno())
    temporary.rename(checkpoint / _MARKER)


def latest_checkpoint(directory: Path, *, at_most: int | None = None) -> Checkpoint | None:
    """Return the complete checkpoint in ``directory`` with the most steps, at most ``at_most``, or None."""
    checkpoints = _complete_checkpoints(directory)
    return max((each for each in checkpoints if at_most is None or each.step <= at_most), default=None)


def discard_old(directory: Path, *, keep: int = 1) -> None:
    """Remove all checkpoints except the newest ``keep`` complete ones; incomplete ones of killed attempts too."""
    kept = {checkpoint.path for checkpoint in sorted(_complete_checkpoints(directory))[-keep:]}
    for path in directory.glob("global_step_*"):
        if path not in kept:
            shutil.rmtree(path)


def _complete_checkpoints(directory: Path) -> Iterator[Checkpoint]:
    for path in directory.glob("global_step_*"):
        match = _FOLDER.fullmatch(path.name)
        if match is None or not (path / _MARKER).exists():
            continue
        checkpoint = Checkpoint(int(match[1]), path)
        # verl's rotation removes only the actor of an old checkpoint
        if checkpoint.weights_path.is_dir():
            yield checkpoint


def assemble_model(
    checkpoint: Checkpoint, base: Path, target: Path, *, kept_adapter: KeptAdapter | None = None
) -> Path:
    """Create a Hugging Face folder from the checkpoint's weights and the base model's other files.

    A LoRA adapter is merged into the weights; with ``kept_adapter`` the folder has it in PEFT's format instead.

    The log-probabilities that the trainer computed under its weights come from the checkpoint (``trained_logprobs``).
    Tokenizer, chat template, generation config and model config are copied from the base model byte for byte:
    training changes only the weights, and libraries rewrite the other files on saving.

    Raises:
        JobError: verl's checkpoint has no weights.
    """
    weights = [path for path in checkpoint.weights_path.iterdir() if _is_weights(path)]
    if not any(path.suffix == ".safetensors" for path in weights):
        raise JobError(
            f"The checkpoint {checkpoint.path} of step {checkpoint.step} has no weights: expected *.safetensors in "
            f"{checkpoint.weights_path}.",
            next_step="Read verl's messages about saving in the job's log.",
        )
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    other_files = [path for path in base.iterdir() if path.is_file() and not _is_of_weights(path)]
    other_files += [path for path in [checkpoint.weights_path / TRAINED_LOGPROBS_FILE] if path.exists()]
    adapter = read_checkpoint_adapter(checkpoint.weights_path)
    if adapter is not None:
        weights = []
        if kept_adapter is None:
            merge_checkpoint(adapter, checkpoint.weights_path, target, check_weights(base).tensors)
        else:
            adapter = stack(read_adapter(kept_adapter.merged), adapter) if kept_adapter.merged else adapter
            write_adapter(adapter, kept_adapter.base, target)
    for path in weights + other_files:
        shutil.copy2(path, target / path.name)
    return target


def _is_of_weights(path: Path) -> bool:
    return _is_weights(path) or path.name == TRAINED_LOGPROBS_FILE


def _is_weights(path: Path) -> bool:
    return path.suffix in {".safetensors", ".bin"} or path.name.endswith((".safetensors.index.json", ".bin.index.json"))
