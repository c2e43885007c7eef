# pyright: basic
"""Recover from a pass that ran out of a GPU's memory.

Invariant: after :func:`discard_pass` the model has no gradient and can run its next pass. The batch starts again with
its first pass.
"""

from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState


def recovery_problem(ranks: int) -> str:
    """Return why a pass cannot be repeated; empty when it can.

    Args:
        ranks: Processes that exchange the model's weights and gradients.
    """
    return f"the other {ranks - 1} ranks wait within the same pass" if ranks > 1 else ""


def discard_pass(module: Any) -> None:
    """Reset an FSDP2 model after an exception within a pass, and drop all gradients."""
    if hasattr(module, "reset_iter_state"):
        module.reset_iter_state()
    else:
        _reset(module._get_fsdp_state())  # noqa: SLF001 - torch before 2.13 has no public call
    for part in module.modules():
        if isinstance(part, FSDPModule):
            # gradients of whole weights, which have not been reduced
            part.unshard()
            _drop_gradients(part)
            part.reshard()
    _drop_gradients(module)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _reset(root: Any) -> None:
    """Do what ``reset_iter_state`` of torch 2.13 does, for a process that exchanges nothing with others."""
    if torch.cuda.is_available():
        # no event is left to wait for
        torch.cuda.synchronize()
    exchange, shared = root._comm_ctx, root._state_ctx  # noqa: SLF001
    exchange.all_gather_state = None
    exchange.post_forward_order.clear()
    if hasattr(exchange, "reduce_scatter_states"):
        exchange.reduce_scatter_states.clear()
    else:
        exchange.reduce_scatter_state = None
    for state in shared.all_states:
        state._modules_to_run_forward.clear()  # noqa: SLF001
        state._training_state = TrainingState.IDLE  # noqa: SLF001
        group = state._fsdp_param_group  # noqa: SLF001
        if group is not None:
            _reset_group(group)
    shared.iter_forward_root = None
    shared.post_backward_final_callback_queued = False


def _reset_group(group: Any) -> None:
    names = (
        "_all_gather_result", "_post_reduce_event", "_all_reduce_state", "_reshard_after_forward_event",
        "_partial_reduce_output",
    )  # fmt: skip
    for name in names:
        setattr(group, name, None)
    group._post_forward_indices.clear()  # noqa: SLF001
    group._training_state = TrainingState.IDLE  # noqa: SLF001
    group._to_sharded()  # noqa: SLF001


def _drop_gradients(module: Any) -> None:
    for parameter in module.parameters():
        parameter.grad = None
