# pyright: basic
"""Choose the layers whose activations a pass keeps for its backward pass; the other layers recompute theirs.

Layers checkpoint their activations where the estimate of the job's memory asks for it. A pass then keeps those of as
many layers as the free memory of the GPU has room for. The last layers are kept: the backward pass frees them first,
before it recomputes the others.
"""

from collections.abc import Iterable
from typing import Any

import torch

from spanloop.training.models.memory_estimate import USABLE_SHARE, pass_memory
from spanloop.training.models.model_shape import ModelShape, shape_of_config

_MOMENTS = 2


class KeptActivations:
    """Sets which layers of a model recompute their activations.

    Args:
        model: A causal model of transformers, or one with a value head, whose layers checkpoint their activations.
    """

    def __init__(self, model: Any) -> None:
        self._layers: list[Any] = list(model.base_model.layers)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self._shape: ModelShape = shape_of_config(model.config.to_dict(), parameters)
        self._checkpoints = any(layer.gradient_checkpointing for layer in self._layers)
        self._recomputes_all = False
        self.recomputed = 0
        """The number of layers that recompute in the last pass."""

    @property
    def keeps_some(self) -> bool:
        """Whether the last pass kept the activations of layers that could recompute them."""
        return self._checkpoints and self.recomputed < len(self._layers)

    def recompute_all(self) -> None:
        """Keep no layer's activations from now on."""
        self._recomputes_all = True

    def choose(self, tokens: int, free_bytes: int) -> int:
        """Set which layers recompute in the next pass; return their number, the first ones.

        Args:
            tokens: Of the pass.
            free_bytes: Memory that the pass may use.
        """
        if not self._checkpoints:
            return 0
        needed, layer = pass_memory(self._shape, tokens=tokens)
        room = 0 if self._recomputes_all else max(0, int((free_bytes - needed) / layer))
        self.recomputed = max(0, len(self._layers) - room)
        for number, each in enumerate(self._layers):
            each.gradient_checkpointing = number < self.recomputed
        return self.recomputed


def free_bytes(parameters: Iterable[torch.nn.Parameter], optimizer: Any) -> int:
    """Return a GPU's memory that a pass may use.

    Gradients and moments that do not exist yet are subtracted. torch's own limit of a process is obeyed
    (``PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5``).

    Args:
        parameters: Of the model.
        optimizer: Its AdamW.
    """
    free, total = torch.cuda.mem_get_info()
    allocated = torch.cuda.memory_allocated()
    limit = int(torch.cuda.get_per_process_memory_fraction() * total)
    usable = min(free + torch.cuda.memory_reserved(), limit)
    return int(USABLE_SHARE * usable) - allocated - missing_bytes(parameters, optimizer)


def missing_bytes(parameters: Iterable[torch.nn.Parameter], optimizer: Any) -> int:
    """Return the bytes of gradients and moments on the parameters' device that do not exist yet."""
    missing = 0
    for parameter in parameters:
        if not parameter.requires_grad or parameter.device.type == "cpu":
            continue
        local: Any = getattr(parameter, "_local_tensor", parameter)
        missing += local.nbytes * ((parameter.grad is None) + _MOMENTS * (parameter not in optimizer.state))
    return missing
