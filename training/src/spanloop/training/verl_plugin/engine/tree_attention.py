# pyright: basic
"""Causal attention over :class:`~.prefix_tree.PackedRows`, on a CPU.

A token attends causally to its own segment, and to every token of each segment above it. Both parts call torch's flash
kernel, which also returns each query's log-sum-exp, so partial results merge exactly, as in ring attention. In the
backward pass each part gets the merged output and log-sum-exp, so the parts' gradients add up.

Keys and values are not copied per row or padded: memory is that of the packed tokens. The kernel runs in float32 for
any model precision, because its bfloat16 form is four times slower on short segments.
"""

from typing import Any

import torch

from .prefix_tree import PackedRows, Segment

ATTENTION = "spanloop_tree"
"""Name in transformers' table of attention functions."""

_forward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - torch's only op that returns log-sum-exp
_backward: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001


def _parts(segments: tuple[Segment, ...]) -> list[tuple[slice, slice, bool]]:
    """Return (queries, keys, causal) for each segment with itself, then for the tokens below it with the segment."""
    within = [(slice(part.begin, part.end), slice(part.begin, part.end), True) for part in segments]
    above = [
        (slice(part.end, part.subtree_end), slice(part.begin, part.end), False)
        for part in segments
        if part.subtree_end > part.end
    ]
    return within + above


class TreeAttention(torch.autograd.Function):
    """``(query, key, value, segments, scale) -> output``; queries have shape (1, heads, tokens, size)."""

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: Any, scale: float
    ) -> torch.Tensor:
        """Attend part by part; neighbouring query heads share a key head when there are fewer key heads."""
        inputs, dtype = (query, key, value), query.dtype
        query, key, value = (tensor.float() for tensor in inputs)
        merged = torch.empty_like(query)
        total = torch.empty(query.shape[:3], dtype=torch.float32)
        for queries, keys, causal in _parts(segments):
            part, weight = _forward(
                query[:, :, queries], key[:, :, keys], value[:, :, keys], is_causal=causal, scale=scale
            )
            if causal:
                merged[:, :, queries] = part
                total[:, :, queries] = weight
            else:
                before, out = total[:, :, queries], merged[:, :, queries]
                both = torch.logaddexp(before, weight)
                out.mul_((before - both).exp_().unsqueeze(-1)).add_(part * (weight - both).exp_().unsqueeze(-1))
                before.copy_(both)
        output = merged.to(dtype)
        ctx.save_for_backward(*inputs, output, total)
        ctx.segments, ctx.scale = segments, scale
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Return the gradients of query, key and value."""
        dtype = ctx.saved_tensors[0].dtype
        query, key, value, output, total = (saved.float() for saved in ctx.saved_tensors)
        upstream = grads[0].float()
        summed = [torch.zeros_like(tensor) for tensor in (query, key, value)]
        for queries, keys, causal in _parts(ctx.segments):
            parts = _backward(
                upstream[:, :, queries],
                query[:, :, queries],
                key[:, :, keys],
                value[:, :, keys],
                output[:, :, queries],
                total[:, :, queries],
                0.0,
                causal,
                scale=ctx.scale,
            )
            for gradient, span, part in zip(summed, (queries, keys, keys), parts, strict=True):
                gradient[:, :, span].add_(part)
        return (*(gradient.to(dtype) for gradient in summed), None, None)


def tree_attention(  # noqa: PLR0917 - transformers passes by position
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    packed_rows: PackedRows | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' attention interface: (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    if packed_rows is None or attention_mask is not None:
        raise ValueError(f"{type(module).__name__}: {ATTENTION} needs packed_rows and no mask")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    # rotary embeddings can give float32 queries and keys with bfloat16 values
    query, key = query.to(value.dtype), key.to(value.dtype)
    output: Any = TreeAttention.apply(query, key, value, packed_rows.segments, scale)  # type: ignore[no-untyped-call]
    return output.transpose(1, 2).contiguous(), None
