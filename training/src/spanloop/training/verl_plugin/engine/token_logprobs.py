# pyright: basic
"""Log-probabilities of selected tokens from hidden states and the weight of a model's output head.

Logits exist for one block of positions at a time, in the forward pass and in the backward pass. With a vocabulary of
150,000, the logits of a pass and their gradient would be most of a job's memory. The last block of the forward pass is
kept for the backward pass, which computes earlier blocks again; a pass of one block computes nothing again.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from spanloop.training.models.memory_estimate import BLOCK_LOGITS

SLICE_LOGITS = {"cpu": 8 * 1024 * 1024, "cuda": 128 * 1024 * 1024}
"""Logits of a block that are in float32 at a time: 32 MiB and 512 MiB. A GPU needs long slices to be busy."""


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


class _Part(NamedTuple):
    """Consecutive positions."""

    positions: slice
    """In all positions."""
    pairs: slice
    """Of a position and a token, those of these positions."""
    within: slice
    """The positions in their block."""


class _Block(NamedTuple):
    positions: slice
    parts: list[_Part]
    """Slices of the block."""


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
        entropies = logprobs.new_empty(len(hidden) if with_entropy else 0)
        blocks = list(_blocks(len(hidden), rows, weight))
        logits = None
        for block in blocks:
            # the previous block's memory is free before the next one exists
            logits = None
            logits = _logits(hidden[block.positions], weight)
            for part in block.parts:
                scores = _scaled(logits[part.within], temperature).log_softmax(1, dtype=torch.float32)
                logprobs[part.pairs] = scores[rows[part.pairs] - part.positions.start, labels[part.pairs]]
                if with_entropy:
                    entropies[part.positions] = scores.exp().mul_(scores).sum(1).neg_()
        ctx.save_for_backward(hidden, weight, rows, labels)
        ctx.blocks, ctx.temperature, ctx.last_logits = blocks, temperature, logits
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Compute the logits' gradient ``(one-hot - softmax) * gradient / temperature`` block by block.

        It is summed over the tokens of a position, and takes the place of the logits.
        """
        hidden, weight, rows, labels = ctx.saved_tensors
        scaled = grads[0].float() / ctx.temperature
        sums = scaled.new_zeros(len(hidden)).index_add_(0, rows, scaled)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = None
        kept, ctx.last_logits = ctx.last_logits, None
        for block in reversed(ctx.blocks):
            inputs = hidden[block.positions].to(weight.dtype)
            gradient, kept = _logits(inputs, weight) if kept is None else kept, None
            for part in block.parts:
                values = _scaled(gradient[part.within], ctx.temperature).softmax(1, dtype=torch.float32)
                values.mul_(-sums[part.positions, None])
                # a position may have several labels, each once or more
                at = (rows[part.pairs] - part.positions.start, labels[part.pairs])
                values.index_put_(at, scaled[part.pairs], accumulate=True)
                gradient[part.within] = values
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


def _scaled(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return logits divided by the temperature; they are rounded to the weight's type before."""
    return logits if temperature == 1.0 else logits.float().div(temperature)


def _sum(total: torch.Tensor | None, product: torch.Tensor) -> torch.Tensor:
    """Add in float32: a sum of many products in bfloat16 would lose what is small."""
    return product if total is None else total.float().add_(product)


def _blocks(positions: int, rows: torch.Tensor, weight: torch.Tensor) -> Iterator[_Block]:
    size = max(1, BLOCK_LOGITS // len(weight))
    step = max(1, min(size, SLICE_LOGITS[weight.device.type] // len(weight)))
    blocks = [range(start, min(start + size, positions), step) for start in range(0, positions, size)]
    starts = [start for block in blocks for start in block]
    pairs = torch.searchsorted(rows, torch.tensor([*starts, positions], device=rows.device)).tolist()
    pair_runs = iter(pairwise(pairs))
    for block in blocks:
        parts = []
        for start in block:
            end = min(start + step, block.stop)
            within = slice(start - block.start, end - block.start)
            parts.append(_Part(slice(start, end), slice(*next(pair_runs)), within))
        yield _Block(slice(block.start, block.stop), parts)
