# pyright: basic
"""Decide whether a model is computed as packed prefix trees, or by verl's stock engine.

On CUDA the decision includes a self-test: attention over a tree of 64 tokens by torch's private operators, compared
with attention in float32.
"""

from typing import Any, Final

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.utils.import_utils import is_flash_attn_2_available

from .attention_kernels import CudaKernel, kernel_for
from .attention_plan import plan_attention
from .prefix_tree import PackedRows, Segment
from .tree_attention import TreeAttention

_FAMILIES: Final = frozenset({"llama", "qwen2", "qwen3"})
"""Model types with plain causal attention, which :mod:`.tree_attention` computes."""
_SELF_TEST: Final = PackedRows(
    (
        Segment(0, 16, 64),
        *(Segment(16, 26, 40), Segment(26, 34, 34), Segment(34, 40, 40)),
        *(Segment(40, 50, 64), Segment(50, 57, 57), Segment(57, 64, 64)),
    ),
    (),
    64,
)
"""A tree of 64 tokens: a level of consecutive queries, and one whose queries are gathered."""
_TOLERANCE: Final = 2e-2
"""Of the norm of output and gradients; bfloat16 has 5e-3."""


def why_stock(config: Any, dtype: torch.dtype, device: torch.device, *, sequence_parallel: int) -> str:
    """Return why a model is computed by verl's stock engine; empty when rows are packed as trees.

    Args:
        config: Transformers' configuration of the model.
        dtype: Type of the forward pass.
        device: The device of this rank.
        sequence_parallel: Ranks that share a row's tokens (Ulysses).
    """
    if sequence_parallel > 1:
        return f"{sequence_parallel} ranks share each row (ulysses_sequence_parallel_size)"
    return model_problem(config) or attention_problem(config, dtype, device)


def use_flash_attention(model: Any, device: torch.device) -> bool:
    """Let a model of verl's stock engine compute with flash attention; return whether that is installed.

    Flash attention takes the starts of packed rows; torch's own kernels take a mask over all tokens of a pass.
    """
    if device.type != "cuda" or not is_flash_attn_2_available():
        return False
    model.set_attn_implementation("flash_attention_2")
    return True


def model_problem(config: Any) -> str:
    """Return why a model's rows cannot be packed as a tree; empty when they can.

    Args:
        config: Transformers' configuration of the model.
    """
    if config.model_type not in _FAMILIES:
        return f"models of type {config.model_type!r} are not known to work with it"
    if any(layer != "full_attention" for layer in getattr(config, "layer_types", None) or ()):
        return "some of its layers do not attend to the whole past"
    if getattr(config, "attention_dropout", 0.0):
        return "it has attention dropout"
    return ""


def attention_problem(config: Any, dtype: torch.dtype, device: torch.device) -> str:
    """Return why attention over trees does not compute what it should on ``device``; empty when it does.

    Args:
        config: Transformers' configuration of the model.
        dtype: Type of the forward pass.
        device: The device of this rank.
    """
    problem = _self_test(config, dtype, device)
    if problem and device.type == "cuda" and CudaKernel.is_fused:
        CudaKernel.is_fused = False
        print(f"spanloop: torch merges partial results of attention: {problem}", flush=True)  # noqa: T201 - the job's log
        problem = _self_test(config, dtype, device)
    return problem


def _self_test(config: Any, dtype: torch.dtype, device: torch.device) -> str:
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    draw = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(_SELF_TEST.tokens, each, size, generator=draw) for each in (heads, key_heads, key_heads, heads)
    ]
    inputs = [tensor.to(device, dtype) for tensor in tensors]
    try:
        computed = _by_plan(inputs, device)
    except Exception as error:  # noqa: BLE001 - torch, CUDA and Triton each raise their own kinds; the stock engine is there
        return f"the self-test of its kernels failed: {(str(error).strip() or type(error).__name__).splitlines()[0]}"
    for name, one, other in zip(("output", "query", "key", "value"), computed, _by_mask(inputs), strict=True):
        difference = float((one.float() - other).norm() / other.norm())
        if not difference <= _TOLERANCE:
            return f"the self-test of its kernels failed: {name} differs from float32 by {difference:.1e}"
    return ""


def _by_plan(inputs: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    query, key, value, upstream = (tensor.detach().requires_grad_() for tensor in inputs)
    plan = plan_attention(_SELF_TEST, device, longest_run=kernel_for(device).longest_run)
    with torch.enable_grad():
        output: Any = TreeAttention.apply(query, key, value, plan, query.shape[-1] ** -0.5)  # type: ignore[no-untyped-call]
        return [output.detach(), *torch.autograd.grad(output, (query, key, value), upstream)]


def _by_mask(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    query, key, value, upstream = (tensor.detach().float().requires_grad_() for tensor in inputs)
    groups = query.shape[1] // key.shape[1]
    with torch.enable_grad():
        batched = [query, *(tensor.repeat_interleave(groups, 1) for tensor in (key, value))]
        queries, keys, values = (tensor.transpose(0, 1)[None] for tensor in batched)
        attended = scaled_dot_product_attention(queries, keys, values, attn_mask=_visible(query.device))
        output = attended[0].transpose(0, 1)
        return [output.detach(), *torch.autograd.grad(output, (query, key, value), upstream)]


def _visible(device: torch.device) -> torch.Tensor:
    """Return whether a query (first dimension) attends to a key."""
    ends = torch.cat([torch.full((part.end - part.begin,), part.subtree_end) for part in _SELF_TEST.segments])
    position = torch.arange(_SELF_TEST.tokens)
    return ((position[None, :] <= position[:, None]) & (position[:, None] < ends[None, :])).to(device)
