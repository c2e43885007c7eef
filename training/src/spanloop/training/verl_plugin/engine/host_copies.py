# pyright: basic
"""Copy a GPU's tensors to the host's memory, through pinned buffers.

CUDA copies to memory that is not pinned at a tenth of the bus's speed, and pinning memory for a whole checkpoint takes
longer than the copy. Two pinned buffers take turns: while the GPU fills one, the host's threads empty the other.
"""

from copy import copy
from typing import Any

import torch
from torch.distributed.tensor import DTensor

_BUFFER_BYTES = 64 * 1024 * 1024


class HostCopies:
    """Copies of tensors in the host's memory; tensors that share their memory share their copy."""

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
