"""Check the names of layers that get LoRA's matrices against the weights of the base.

Invariant: a name that no linear layer has is an error. PEFT ignores it as long as another name of the list has one.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import JobError

from .files.weights import check_weights

_MATRIX_DIMENSIONS: Final = 2
_NOT_LINEAR: Final = frozenset({"embed_tokens", "wte", "wpe", "lm_head"})
"""Embeddings, and the head, which ``all-linear`` leaves out too."""


def check_target_modules(names: Sequence[str], base: Path) -> None:
    """Check that each name is the last part of the name of a linear layer.

    Args:
        names: The setting ``target_modules``.
        base: Hugging Face folder of the base model.

    Raises:
        JobError: One is not; the message has the names that there are.
    """
    layers = linear_layers(base)
    for name in names:
        if layers and name not in layers:
            nearest = difflib.get_close_matches(name, layers, n=1)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            raise JobError(
                f"target_modules: no linear layer of the base {base} is named {name}.",
                next_step=f"{hint}Its linear layers are {', '.join(layers)}.",
            )


def linear_layers(base: Path) -> list[str]:
    """Return the last parts of the names of linear layers; empty for weights that are not in safetensors."""
    names = {
        name.removesuffix(".weight").rpartition(".")[2]
        for name, tensor in check_weights(base).tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == _MATRIX_DIMENSIONS
    }
    return sorted(names - _NOT_LINEAR)
