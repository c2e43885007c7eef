# pyright: basic
# mypy: disable-error-code="no-untyped-call"
"""Write a checkpoint beside the next steps: copy it to the host's memory, and let a thread write the copy.

verl's checkpoint manager decides what a checkpoint has and under which names. While it saves, its writes of tensors
(``torch.save`` and a model's ``save_pretrained``) are replaced: they keep a copy in the host's memory, and the thread
makes the same calls later. verl's barriers and its gathering of sharded weights stay in the training thread.

Invariant: one checkpoint is written at a time, and the file of :func:`~..pending_checkpoint.written_path` is the last
one that a rank writes.
"""

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from verl.utils.checkpoint import fsdp_checkpoint_manager
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from ..pending_checkpoint import written_path

_STOCK: Any = FSDPCheckpointManager
_BUFFER_BYTES = 64 * 1024 * 1024


def writes_beside(module: torch.nn.Module) -> bool:
    """Return whether a model's checkpoints are written beside its training.

    On a CPU the copy would take as much memory again as the training's own states, and writing takes the same cores.
    """
    return next(module.parameters()).device.type != "cpu"


class BackgroundCheckpoints(_STOCK):  # type: ignore[misc]
    """verl's checkpoint manager of one rank, whose saves return when the copy is in the host's memory."""

    _writer: "_Writer | None" = None

    def save_checkpoint(
        self, local_path: str | None, hdfs_path: str | None = None, global_step: int = 0, max_ckpt_to_keep: Any = None
    ) -> None:
        """Wait for the previous checkpoint, then copy this one and begin to write it.

        Args:
            local_path: Folder of this checkpoint; None only waits.
            hdfs_path: Unused, as in verl.
            global_step: The completed step.
            max_ckpt_to_keep: verl's number of kept checkpoints.

        Raises:
            Exception: What the previous checkpoint's writing raised.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.wait()
        if local_path is None:
            return
        folder = Path(local_path)
        written = written_path(folder, self.rank)
        written.unlink(missing_ok=True)
        if not writes_beside(self.model):
            super().save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)
            written.touch()
            return
        started_s = time.monotonic()
        with _deferred_writes(gathers_copies=self.world_size > 1) as writes:
            super().save_checkpoint(local_path, hdfs_path, global_step, max_ckpt_to_keep)
        if self.rank == 0:
            print(f"spanloop: copied a checkpoint in {time.monotonic() - started_s:.1f} s", flush=True)  # noqa: T201 - the job's log
        self._writer = _Writer([*writes, written.touch])


def _whole_weights(model: torch.nn.Module, **_: Any) -> dict[str, Any]:
    """Return the weights of a model of which one rank has all, as verl gathers them, without a copy."""
    state: dict[str, Any] = model.state_dict()
    return {name: value.to_local() if isinstance(value, DTensor) else value for name, value in state.items()}


class _Writer:
    """Runs writes in a thread.

    Args:
        writes: In order.
    """

    def __init__(self, writes: list[Callable[[], object]]) -> None:
        self._writes = writes
        self._problem: BaseException | None = None
        # a process that ends early leaves an incomplete checkpoint, as one that is killed
        self._thread = Thread(target=self._run, name="checkpoint", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._writes:
                # the copy of what is written is given back
                self._writes.pop(0)()
        except BaseException as error:  # noqa: BLE001 - raised by wait, in the thread that trains
            self._problem = error
            self._writes.clear()

    def wait(self) -> None:
        """Return when everything is written.

        Raises:
            Exception: What a write raised.
        """
        self._thread.join()
        if self._problem is not None:
            raise self._problem


@contextmanager
def _deferred_writes(*, gathers_copies: bool) -> Generator[list[Callable[[], object]]]:
    """Collect writes of tensors, with copies in the host's memory, in place of making them.

    Args:
        gathers_copies: Whether the weights that verl gathers for ``save_pretrained`` are copies already. Without, one
            rank has all of them, and none is copied twice.
    """
    writes: list[Callable[[], object]] = []
    copies = HostCopies()
    save, save_pretrained = torch.save, PreTrainedModel.save_pretrained

    def keep_tensors(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        writes.append(partial(save, copies.of(content), path, *args, **kwargs))

    def keep_model(model: Any, path: Any, *, state_dict: Any, **kwargs: Any) -> None:
        kept = state_dict if gathers_copies else copies.of(state_dict)
        writes.append(partial(save_pretrained, model, path, state_dict=kept, **kwargs))

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "save", keep_tensors))
        stack.enter_context(patch.object(PreTrainedModel, "save_pretrained", keep_model))
        if not gathers_copies:
            stack.enter_context(patch.object(fsdp_checkpoint_manager, "get_fsdp_full_state_dict", _whole_weights))
        yield writes


class HostCopies:
    """Copies of tensors in the host's memory; tensors that share their memory share their copy.

    CUDA copies to memory that is not pinned at a tenth of the bus's speed, and pinning memory for a whole checkpoint
    takes longer than the copy. Two pinned buffers take turns: while the GPU fills one, the host's threads empty the
    other.
    """

    def __init__(self) -> None:
        self._by_memory: dict[Any, tuple[torch.Tensor, torch.Tensor]] = {}
        self._buffers: list[torch.Tensor] = []

    def of(self, content: Any) -> Any:
        """Return ``content``, tensors in dictionaries, lists and tuples, with copies of the tensors."""
        if isinstance(content, torch.Tensor):
            return self._tensor(content)
        if isinstance(content, dict):
            # keeps what a state dict has besides its items
            copied = copy(content)
            copied.update((key, self.of(value)) for key, value in content.items())
            return copied
        if type(content) in {list, tuple}:
            return type(content)(self.of(value) for value in content)
        return content

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        memory = (local.data_ptr(), local.dtype, local.shape, local.stride())
        if memory not in self._by_memory:
            # the tensor is kept too, so that its memory is not used for another one
            self._by_memory[memory] = (tensor, self._copied(local.detach()))
        copied = self._by_memory[memory][1]
        if isinstance(tensor, DTensor):
            return DTensor(copied, tensor._spec, requires_grad=False)  # noqa: SLF001 - from_local moves it to the mesh's device
        return copied

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cuda" or not tensor.is_contiguous() or tensor.nbytes < _BUFFER_BYTES // 64:
            return tensor.to("cpu", copy=True)
        target = torch.empty(tensor.shape, dtype=tensor.dtype)
        self._stream(tensor.view(-1).view(torch.uint8), target.view(-1).view(torch.uint8))
        return target

    def _stream(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """Copy bytes through the buffers."""
        if not self._buffers:
            self._buffers = [torch.empty(_BUFFER_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        filled: list[tuple[torch.Tensor, torch.Tensor, torch.cuda.Event]] = []
        for number, (part, place) in enumerate(
            zip(source.split(_BUFFER_BYTES), target.split(_BUFFER_BYTES), strict=True)
        ):
            buffer = self._buffers[number % 2][: len(part)]
            buffer.copy_(part, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            filled.append((place, buffer, event))
            if len(filled) == len(self._buffers):
                _empty(*filled.pop(0))
        for each in filled:
            _empty(*each)


def _empty(place: torch.Tensor, buffer: torch.Tensor, event: torch.cuda.Event) -> None:
    event.synchronize()
    place.copy_(buffer)
