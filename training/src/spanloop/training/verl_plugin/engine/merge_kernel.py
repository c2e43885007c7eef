# pyright: basic, reportMissingImports=false
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202, N803, PLR0917 - Triton compiles the function, by these names
"""Merge partial results of attention on CUDA in one pass over memory, in Triton.

It computes what :func:`~.attention_kernels.merge` does. The formula in torch makes several tensors of the size of the
output: on an H100, attention over a tree of 28,700 tokens takes 4.0 ms with it, and 3.0 ms with this kernel.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl


# values that differ between passes must not compile it again
@triton.jit(do_not_specialize=["offset", "tokens", "count"])
def _merge_rows(
    merged, total, part, weight, index, offset, tokens, count, heads,
    SIZE: tl.constexpr, HEADS: tl.constexpr, INDEXED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    position = tl.load(index + row) if INDEXED else offset + row
    head = tl.arange(0, HEADS)
    column = tl.arange(0, SIZE)
    is_head = head < heads
    before = tl.load(total + head * tokens + position, mask=is_head, other=0.0)
    new = tl.load(weight + head * count + row, mask=is_head, other=0.0)
    largest = tl.maximum(before, new)
    both = largest + tl.log(tl.exp(before - largest) + tl.exp(new - largest))
    merged_at = merged + position * heads * SIZE + head[:, None] * SIZE + column[None, :]
    part_at = part + row * heads * SIZE + head[:, None] * SIZE + column[None, :]
    kept = tl.load(merged_at, mask=is_head[:, None], other=0.0).to(tl.float32) * tl.exp(before - both)[:, None]
    added = tl.load(part_at, mask=is_head[:, None], other=0.0).to(tl.float32) * tl.exp(new - both)[:, None]
    tl.store(merged_at, kept + added, mask=is_head[:, None])
    tl.store(total + head * tokens + position, both, mask=is_head)


def merge_on_cuda(
    merged: torch.Tensor,
    total: torch.Tensor,
    output: torch.Tensor,
    logsumexp: torch.Tensor,
    index: torch.Tensor | slice,
) -> None:
    """Merge ``output`` and ``logsumexp`` of some queries into ``merged`` and ``total`` of all, in place.

    Args:
        merged: Shape (tokens, heads, size), contiguous; the size is a power of two.
        total: float32, shape (heads, tokens), contiguous.
        output: Shape (queries, heads, size), contiguous.
        logsumexp: float32, shape (heads, queries), contiguous.
        index: The queries' positions, each once.
    """
    is_indexed = isinstance(index, torch.Tensor)
    count, heads, size = output.shape
    cast("Any", _merge_rows)[(count,)](
        merged,
        total,
        output,
        logsumexp,
        index if is_indexed else merged,
        0 if is_indexed else index.start,
        total.shape[1],
        count,
        heads,
        SIZE=size,
        HEADS=triton.next_power_of_2(heads),
        INDEXED=is_indexed,
        num_warps=4,
    )
