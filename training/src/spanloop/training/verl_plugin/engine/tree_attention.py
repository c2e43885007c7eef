# pyright: basic
"""Causal attention over :class:`~.prefix_tree.PackedRows`, by the calls of an :class:`~.attention_plan.AttentionPlan`.

Partial results of the calls are merged in float32, and rounded to the kernel's type after each call. In the backward
pass each call gets the merged output and log-sum-exp, so the gradients of the calls add up. Keys and values are not
copied for each row or padded: memory is that of the packed tokens.
"""

from typing import Any, NamedTuple

import torch

from .attention_kernels import Attended, Gradients, VarlenKernel, kernel_for, take
from .attention_plan import AttentionPlan, Index

ATTENTION = "spanloop_tree"
"""Name in transformers' table of attention functions; one that contains "flash" would be taken for its own."""


class _Merged(NamedTuple):
    """Attention of all tokens to their past."""

    output: torch.Tensor
    """In the type of the model."""
    logsumexp: torch.Tensor
    states: list[Any]
    """Of each call of the kernel, for its backward pass."""


class _Saved(NamedTuple):
    """What the forward pass leaves for the backward pass besides tensors of the tokens."""

    kernel: VarlenKernel
    plan: AttentionPlan
    scale: float
    states: list[Any]


class TreeAttention(torch.autograd.Function):
    """``(query, key, value, plan, scale, layer) -> output``.

    Tensors have shape (tokens, heads, size); keys and values may have fewer heads.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        plan: AttentionPlan,
        scale: float,
        layer: int | None = None,
    ) -> torch.Tensor:
        """Attend call by call and merge, or within a backward pass take the result that the layer kept.

        ``layer`` is the layer's number; None keeps nothing.
        """
        kernel = kernel_for(query.device)
        result: _Merged | None = plan.kept.pop(layer) if layer is not None and _is_in_backward() else None
        if result is None:
            result = _attend(kernel, query, key, value, plan, scale)
            if layer is not None and not _is_in_backward():
                plan.kept.keep(layer, result)
        ctx.save_for_backward(query, key, value, result.output, result.logsumexp)
        ctx.saved = _Saved(kernel, plan, scale, result.states)
        # the tensor that is kept must not become part of this forward pass's graph
        return result.output.view_as(result.output)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Return the gradients of query, key and value."""
        saved: _Saved = ctx.saved
        *tensors, total = ctx.saved_tensors
        dtype = tensors[0].dtype
        compute = saved.kernel.compute_dtype(dtype)
        query, key, value, output = (tensor.to(compute) for tensor in tensors)
        upstream = grads[0].to(compute).contiguous()
        first, *states = saved.states
        runs = saved.plan.segments
        attended = Attended(output, total, first)
        parts = saved.kernel.backward(upstream, query, key, value, attended, runs, runs, causal=True, scale=saved.scale)
        if states:
            # a key gets a part for each run of queries below it; a query gets one for each level
            parts = Gradients(parts.query, parts.key.to(total.dtype), parts.value.to(total.dtype))
        summed = parts
        for level, state in zip(saved.plan.levels, states, strict=True):
            at, of = level.query_index, level.key_index
            parts = saved.kernel.backward(
                take(upstream, at),
                take(query, at),
                take(key, of),
                take(value, of),
                Attended(take(output, at), take(total, at, 1), state),
                level.queries,
                level.keys,
                causal=False,
                scale=saved.scale,
            )
            for gradient, index, part in zip(summed, (at, of, of), parts, strict=True):
                _add(gradient, index, part)
        return (*(gradient.to(dtype) for gradient in summed), None, None, None)


def _is_in_backward() -> bool:
    """Return whether autograd runs a backward pass in this thread, as FSDP2 asks too."""
    return bool(torch._C._current_graph_task_id() != -1)  # noqa: SLF001 - no public call


def _attend(  # noqa: PLR0917
    kernel: VarlenKernel,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    plan: AttentionPlan,
    scale: float,
) -> _Merged:
    dtype = query.dtype
    query, key, value = (tensor.to(kernel.compute_dtype(dtype)) for tensor in (query, key, value))
    runs = plan.segments
    output, total, state = kernel.forward(query, key, value, runs, runs, causal=True, scale=scale)
    states = [state]
    if plan.levels:
        for level in plan.levels:
            part = kernel.forward(
                take(query, level.query_index),
                take(key, level.key_index),
                take(value, level.key_index),
                level.queries,
                level.keys,
                causal=False,
                scale=scale,
            )
            kernel.merge(output, total, part, level.query_index)
            states.append(part.state)
    return _Merged(output.to(dtype), total, states)


def _add(tensor: torch.Tensor, index: Index, part: torch.Tensor) -> None:
    """Add ``part`` to the positions ``index`` of ``tensor``, in place; a position may occur repeatedly."""
    if isinstance(index, slice):
        tensor[index] += part
    else:
        tensor.index_add_(0, index, part.to(tensor.dtype))


def tree_attention(  # noqa: PLR0917 - transformers passes by position
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    attention_plan: AttentionPlan | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' attention interface: (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    if attention_plan is None or attention_mask is not None:
        raise ValueError(f"{type(module).__name__}: {ATTENTION} needs attention_plan and no mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # rotary embeddings can give float32 queries and keys with bfloat16 values; an index would copy in the backward pass
    inputs = (tensor.squeeze(0).transpose(0, 1).to(value.dtype).contiguous() for tensor in (query, key, value))
    layer = getattr(module, "layer_idx", None) if torch.is_grad_enabled() and query.requires_grad else None
    output: Any = TreeAttention.apply(*inputs, attention_plan, scale, layer)  # type: ignore[no-untyped-call]
    return output[None], None
