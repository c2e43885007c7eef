# pyright: basic
"""Log-probabilities of selected tokens from hidden states and the weight of a model's output head.

Logits exist for one block of positions at a time, in the forward pass and in the backward pass. With a vocabulary of
150,000, the logits of a pass and their gradient would be most of a job's memory. The last block of the forward pass is
kept for the backward pass, which computes earlier blocks again; a pass of one block computes nothing again.

The softmax of a block is computed in float32: on CUDA by kernels in Triton, which need no memory besides the block;
elsewhere by torch's operations on slices of it.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from spanloop.training.models.memory_estimate import BLOCK_LOGITS, SLICE_LOGITS

from .attention_kernels import CudaKernel


class TokenLogprobs(NamedTuple):
    """What the loss needs of the distribution of each selected position."""

    logprobs: torch.Tensor
    """Of each selected token in nats, float32."""
    entropies: torch.Tensor
    """Of each position's distribution in nats, float32, without gradient; empty unless they were requested."""


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    rows: torch.Tensor,
    labels: torch.Tensor,
    temperature: float = 1.0,
    *,
    with_entropy: bool = False,
) -> TokenLogprobs:
    """Return ``log softmax(hidden @ weight.T / temperature)[rows, labels]``, with gradients.

    Args:
        hidden: The head's inputs, shape (positions, hidden size).
        weight: The head's weight, shape (vocabulary, hidden size); logits have its type.
        rows: Indices of positions, ascending; a position may occur for several tokens.
        labels: Token ids, parallel to ``rows``.
        temperature: Above zero.
        with_entropy: Whether entropies are returned too.
    """
    return TokenLogprobs(*_TokenLogprobs.apply(hidden, weight, rows, labels, temperature, with_entropy))  # type: ignore[no-untyped-call]


class _Block(NamedTuple):
    """Consecutive positions, whose logits exist together."""

    positions: slice
    pairs: slice
    """Of a position and a token, those of these positions."""


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        rows: torch.Tensor,
        labels: torch.Tensor,
        temperature: float,
        with_entropy: bool,  # noqa: FBT001
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`token_logprobs`."""
        logprobs = torch.empty(len(rows), dtype=torch.float32, device=hidden.device)
        logsumexps = logprobs.new_empty(len(hidden))
        entropies = logprobs.new_empty(len(hidden) if with_entropy else 0)
        statistics, _ = _softmax_kernels(hidden.device)
        blocks = list(_blocks(len(hidden), rows, weight))
        logits = None
        for block in blocks:
            # the previous block's memory is free before the next one exists
            logits = None
            logits = _logits(hidden[block.positions], weight)
            statistics(logits, temperature, logsumexps[block.positions], entropies[block.positions])
            at = rows[block.pairs]
            selected = logits[at - block.positions.start, labels[block.pairs]].float() / temperature
            logprobs[block.pairs] = selected - logsumexps[at]
        ctx.save_for_backward(hidden, weight, rows, labels, logsumexps, logprobs)
        ctx.blocks, ctx.temperature, ctx.last_logits = blocks, temperature, logits
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Compute the logits' gradient ``(one-hot - softmax) * gradient / temperature`` block by block.

        It is summed over the tokens of a position, and takes the place of the logits.
        """
        hidden, weight, rows, labels, logsumexps, logprobs = ctx.saved_tensors
        scaled = grads[0].float() / ctx.temperature
        sums = scaled.new_zeros(len(hidden)).index_add_(0, rows, scaled)
        selected = _sums_of_equal(rows * len(weight) + labels, scaled) - sums[rows] * logprobs.exp()
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = None
        _, softmax_gradient = _softmax_kernels(hidden.device)
        kept, ctx.last_logits = ctx.last_logits, None
        for block in reversed(ctx.blocks):
            inputs = hidden[block.positions].to(weight.dtype)
            gradient, kept = _logits(inputs, weight) if kept is None else kept, None
            softmax_gradient(gradient, ctx.temperature, logsumexps[block.positions], sums[block.positions])
            at = (rows[block.pairs] - block.positions.start, labels[block.pairs])
            gradient.index_put_(at, selected[block.pairs].to(gradient.dtype))
            if hidden_gradient is not None:
                hidden_gradient[block.positions] = gradient @ weight
            if needs_weight:
                weight_gradient = _sum(weight_gradient, gradient.t() @ inputs)
            del gradient
        if weight_gradient is not None:
            weight_gradient = weight_gradient.to(weight.dtype)
        return hidden_gradient, weight_gradient, None, None, None, None


def _logits(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    # the caller's autocast would round float32 weights
    with torch.autocast(hidden.device.type, enabled=False):
        return hidden.to(weight.dtype) @ weight.t()


def _sums_of_equal(keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return for each key the sum of the values of all equal keys."""
    distinct, inverse = keys.unique(return_inverse=True)
    return values.new_zeros(len(distinct)).index_add_(0, inverse, values)[inverse]


def _sum(total: torch.Tensor | None, product: torch.Tensor) -> torch.Tensor:
    """Add in float32: a sum of many products in bfloat16 would lose what is small."""
    return product if total is None else total.float().add_(product)


def _blocks(positions: int, rows: torch.Tensor, weight: torch.Tensor) -> Iterator[_Block]:
    size = max(1, BLOCK_LOGITS[weight.device.type] // len(weight))
    starts = [*range(0, positions, size), positions]
    pairs = torch.searchsorted(rows, torch.tensor(starts, device=rows.device)).tolist()
    for block, block_pairs in zip(pairwise(starts), pairwise(pairs), strict=True):
        yield _Block(slice(*block), slice(*block_pairs))


def _softmax_kernels(device: torch.device) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return what computes :func:`statistics_in_torch` and :func:`gradient_in_torch` on a device."""
    if device.type != "cuda" or not CudaKernel.is_fused:
        return statistics_in_torch, gradient_in_torch
    from . import triton_kernels  # noqa: PLC0415 - Triton is there beside CUDA only

    return triton_kernels.softmax_statistics_on_cuda, triton_kernels.softmax_gradient_on_cuda


def statistics_in_torch(
    logits: torch.Tensor, temperature: float, logsumexps: torch.Tensor, entropies: torch.Tensor
) -> None:
    """Write the log-sum-exp of each row of ``logits / temperature``, and the entropy of its softmax in nats.

    Args:
        logits: Shape (positions, vocabulary), contiguous.
        temperature: Above zero.
        logsumexps: float32, shape (positions,); is written.
        entropies: The same; empty when they are not needed.
    """
    for part in _slices(logits):
        scaled = _scaled(logits[part], temperature)
        # one pass of a fused kernel; torch's log-sum-exp takes four
        scores = scaled.log_softmax(1, dtype=torch.float32)
        logsumexps[part] = scaled[:, 0].float() - scores[:, 0]
        if len(entropies):
            entropies[part] = scores.exp().mul_(scores).sum(1).neg_()


def gradient_in_torch(logits: torch.Tensor, temperature: float, logsumexps: torch.Tensor, sums: torch.Tensor) -> None:
    """Put ``-softmax(logits / temperature) * sums`` in the place of the logits.

    Args:
        logits: Shape (positions, vocabulary), contiguous.
        temperature: Above zero.
        logsumexps: Of each row, float32.
        sums: A factor for each row, float32.
    """
    for part in _slices(logits):
        scores = _scaled(logits[part], temperature) - logsumexps[part, None]
        logits[part] = scores.exp_().mul_(-sums[part, None])


def _scaled(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return logits divided by the temperature; they are rounded to the weight's type before."""
    return logits if temperature == 1.0 else logits.float().div(temperature)


def _slices(logits: torch.Tensor) -> Iterator[slice]:
    step = max(1, SLICE_LOGITS[logits.device.type] // logits.shape[1])
    return (slice(start, start + step) for start in range(0, len(logits), step))
