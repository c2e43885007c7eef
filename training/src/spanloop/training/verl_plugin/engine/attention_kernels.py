# pyright: basic
"""Attention of runs of queries to runs of keys on each device, with the log-sum-exp of each query.

Both kernels are torch's flash kernels behind private operators, the only ones that return the log-sum-exp. Tensors have
shape (tokens, heads, size); neighbouring query heads share a key head when there are fewer key heads.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch

from .attention_plan import Index, Runs

_CPU_FORWARD: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - see the module's docstring
_CPU_BACKWARD: Any = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward  # noqa: SLF001
CUDA_FORWARD: Any = torch.ops.aten._flash_attention_forward  # noqa: SLF001
CUDA_BACKWARD: Any = torch.ops.aten._flash_attention_backward  # noqa: SLF001
_NO_DROPOUT = 0.0

_CUDA_LONGEST_RUN = 4096
"""Queries below one segment that one run of the backward kernel takes; see :func:`~.attention_plan.plan_attention`."""


class Attended(NamedTuple):
    """The result of a kernel's forward pass."""

    output: torch.Tensor
    """Shape (queries, heads, size)."""
    logsumexp: torch.Tensor
    """float32, or float64 for float64 inputs; shape (heads, queries)."""
    state: Any
    """What the backward pass needs besides."""


class Gradients(NamedTuple):
    """Gradients of the inputs of attention, each in the shape of its input."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


class VarlenKernel(Protocol):
    """Attention of each run of queries to the run of keys of the same number."""

    @property
    def longest_run(self) -> int | None:
        """See :func:`~.attention_plan.plan_attention`."""
        ...

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type in which the kernel takes inputs of ``dtype``."""
        ...

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """Attend; ``causal`` needs equal runs of queries and keys."""
        ...

    def backward(  # noqa: PLR0917
        self,
        upstream: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attended: Attended,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Gradients:
        """Return the gradients of these pairs of runs.

        ``attended`` has the output and log-sum-exp over all keys of each query, those of other calls included, and the
        state of the forward pass of these pairs. So gradients of several calls add up.
        """
        ...

    def merge(self, merged: torch.Tensor, total: torch.Tensor, part: Attended, index: Index) -> None:
        """See :func:`merge`."""
        ...


def merge(merged: torch.Tensor, total: torch.Tensor, part: Attended, index: Index) -> None:
    """Merge attention of some queries to further keys into that of all queries, in place.

    Args:
        merged: Output so far; shape (tokens, heads, size).
        total: Its log-sum-exp; shape (heads, tokens).
        part: Of the further keys.
        index: Positions of the part's queries.
    """
    before = take(total, index, 1)
    both = torch.logaddexp(before, part.logsumexp)
    kept, added = ((weight - both).exp_().t().unsqueeze(2) for weight in (before, part.logsumexp))
    target = take(merged, index)
    # the same tensor where the types agree
    output = target.to(total.dtype).mul_(kept).addcmul_(part.output, added)
    if isinstance(index, slice):
        target.copy_(output)
        before.copy_(both)
    else:
        merged.index_copy_(0, index, output.to(merged.dtype))
        total.index_copy_(1, index, both)


def take(tensor: torch.Tensor, index: Index, dimension: int = 0) -> torch.Tensor:
    """Return the positions ``index`` of a dimension: a view for a slice, else a copy."""
    if isinstance(index, slice):
        return tensor.narrow(dimension, index.start, index.stop - index.start)
    return tensor.index_select(dimension, index)


class CpuKernel:
    """One call of torch's flash kernel for CPUs for each pair of runs.

    It computes in float32 for any model precision, because its bfloat16 form is four times slower on short runs.
    """

    longest_run = None

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return float32, or float64 for float64."""
        return torch.promote_types(dtype, torch.float32)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """See :class:`VarlenKernel`."""
        output = torch.empty_like(query)
        logsumexp = query.new_empty(query.shape[1], query.shape[0])
        for at, of in _pairs(queries, keys):
            part, weight = _CPU_FORWARD(
                *(_batched(each) for each in (query[at], key[of], value[of])), is_causal=causal, scale=scale
            )
            output[at] = part[0].transpose(0, 1)
            logsumexp[:, at] = weight[0]
        return Attended(output, logsumexp, None)

    def backward(  # noqa: PLR0917
        self,
        upstream: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attended: Attended,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Gradients:
        """See :class:`VarlenKernel`."""
        gradients = Gradients(*(torch.empty_like(each) for each in (query, key, value)))
        for at, of in _pairs(queries, keys):
            inputs = (upstream[at], query[at], key[of], value[of], attended.output[at])
            parts = _CPU_BACKWARD(
                *(_batched(each) for each in inputs),
                attended.logsumexp[None, :, at],
                _NO_DROPOUT,
                causal,
                scale=scale,
            )
            for gradient, run, part in zip(gradients, (at, of, of), parts, strict=True):
                gradient[run] = part[0].transpose(0, 1)
        return gradients

    def merge(self, merged: torch.Tensor, total: torch.Tensor, part: Attended, index: Index) -> None:
        """See :func:`merge`."""
        merge(merged, total, part, index)


class CudaKernel:
    """One call of torch's variable-length flash kernel for all pairs of runs, in bfloat16 or float16."""

    longest_run = _CUDA_LONGEST_RUN
    is_fused = find_spec("triton") is not None
    """Whether partial results are merged by a kernel of Triton, which CUDA builds of torch bring."""

    def compute_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return ``dtype``; the kernel refuses others than bfloat16 and float16."""
        return dtype

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Attended:
        """See :class:`VarlenKernel`."""
        runs = (queries.starts_on_device, keys.starts_on_device, queries.longest, keys.longest)
        output, logsumexp, seed, offset, _ = CUDA_FORWARD(
            query, key, value, *runs, _NO_DROPOUT, causal, False, scale=scale
        )
        return Attended(output, logsumexp, (seed, offset))

    def backward(  # noqa: PLR0917
        self,
        upstream: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attended: Attended,
        queries: Runs,
        keys: Runs,
        *,
        causal: bool,
        scale: float,
    ) -> Gradients:
        """See :class:`VarlenKernel`."""
        runs = (queries.starts_on_device, keys.starts_on_device, queries.longest, keys.longest)
        inputs = (upstream, query, key, value, attended.output, attended.logsumexp.contiguous())
        return Gradients(*CUDA_BACKWARD(*inputs, *runs, _NO_DROPOUT, causal, *attended.state, scale=scale))

    def merge(self, merged: torch.Tensor, total: torch.Tensor, part: Attended, index: Index) -> None:
        """See :func:`merge`."""
        if not self.is_fused or merged.shape[2] & (merged.shape[2] - 1):
            merge(merged, total, part, index)
            return
        from .triton_kernels import merge_on_cuda  # noqa: PLC0415 - Triton is there beside CUDA only

        merge_on_cuda(merged, total, part.output, part.logsumexp, index)


def kernel_for(device: torch.device) -> VarlenKernel:
    """Return the kernel of a device.

    Raises:
        ValueError: It is neither a CPU nor a CUDA device.
    """
    if device.type == "cuda":
        return CudaKernel()
    if device.type == "cpu":
        return CpuKernel()
    raise ValueError(f"attention over packed rows: got a tensor on {device}, expected cpu or cuda")


def _pairs(queries: Runs, keys: Runs) -> Iterator[tuple[slice, slice]]:
    for query_run, key_run in zip(pairwise(queries.starts), pairwise(keys.starts), strict=True):
        yield slice(*query_run), slice(*key_run)


def _batched(tensor: torch.Tensor) -> torch.Tensor:
    """Return (1, heads, tokens, size) of (tokens, heads, size), without a copy."""
    return tensor.transpose(0, 1)[None]
