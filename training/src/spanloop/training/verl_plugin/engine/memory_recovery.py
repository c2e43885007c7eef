# pyright: basic
"""Recover from a pass that ran out of a GPU's memory.

Invariant: after :func:`discard_pass` the model has no gradient and can run its next pass. The batch starts again with
its first pass.
"""

from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule


def recovery_problem(module: Any, ranks: int) -> str:
    """Return why a pass cannot be repeated; empty when it can.

    Args:
        module: The root of an FSDP2 model.
        ranks: Processes that exchange its weights and gradients.
    """
    if ranks > 1:
        return f"the other {ranks - 1} ranks wait within the same pass"
    if not hasattr(module, "reset_iter_state"):
        return f"FSDP2 of torch {torch.__version__} cannot leave a pass before its end"
    return ""


def discard_pass(module: Any) -> None:
    """Reset an FSDP2 model after an exception within a pass, and drop all gradients."""
    module.reset_iter_state()
    for part in module.modules():
        if isinstance(part, FSDPModule):
            # gradients of whole weights, which have not been reduced
            part.unshard()
            _drop_gradients(part)
            part.reshard()
    _drop_gradients(module)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _drop_gradients(module: Any) -> None:
    for parameter in module.parameters():
        parameter.grad = None
