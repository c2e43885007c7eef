# pyright: basic
"""Log-probabilities of selected tokens from hidden states and the weight of a model's output head.

Logits exist for one slice of positions at a time, in the forward pass and in the backward pass, which computes them
again. With a vocabulary of 150,000, the logits of a pass and their gradient would be most of a job's memory.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

_SLICE_LOGITS = {"cpu": 8 * 1024 * 1024, "cuda": 128 * 1024 * 1024}
"""Logits at a time: in float32, 32 MiB and 512 MiB. A GPU needs long slices for its matrix products."""


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


class _Slice(NamedTuple):
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
        entropies = logprobs.new_empty(len(hidden) if with_entropy else 0)
        slices = list(_slices(len(hidden), rows, weight))
        for positions, pairs in slices:
            scores = _logits(hidden[positions], weight, temperature).log_softmax(1, dtype=torch.float32)
            logprobs[pairs] = scores[rows[pairs] - positions.start, labels[pairs]]
            if with_entropy:
                entropies[positions] = scores.exp().mul_(scores).sum(1).neg_()
        ctx.save_for_backward(hidden, weight, rows, labels)
        ctx.slices, ctx.temperature = slices, temperature
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Compute the logits' gradient ``(one-hot - softmax) * gradient / temperature`` slice by slice.

        It is summed over the tokens of a position.
        """
        hidden, weight, rows, labels = ctx.saved_tensors
        scaled = grads[0].float() / ctx.temperature
        sums = scaled.new_zeros(len(hidden)).index_add_(0, rows, scaled)
        needs_hidden, needs_weight = ctx.needs_input_grad[:2]
        hidden_gradient = torch.empty_like(hidden) if needs_hidden else None
        weight_gradient = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        for positions, pairs in ctx.slices:
            inputs = hidden[positions].to(weight.dtype)
            gradient = _logits(inputs, weight, ctx.temperature).softmax(1, dtype=torch.float32)
            gradient.mul_(-sums[positions, None])
            # a position may have several labels, each once or more
            at = (rows[pairs] - positions.start, labels[pairs])
            gradient.index_put_(at, scaled[pairs], accumulate=True)
            gradient = gradient.to(weight.dtype)
            if hidden_gradient is not None:
                hidden_gradient[positions] = gradient @ weight
            if weight_gradient is not None:
                _add_product(weight_gradient, gradient.t(), inputs)
        weight_gradient = None if weight_gradient is None else weight_gradient.to(weight.dtype)
        return hidden_gradient, weight_gradient, None, None, None, None


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return logits divided by the temperature; they are rounded to the weight's type before."""
    # the caller's autocast would round float32 weights
    with torch.autocast(hidden.device.type, enabled=False):
        logits = hidden.to(weight.dtype) @ weight.t()
    return logits if temperature == 1.0 else logits.float().div_(temperature)


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Add a matrix product to the float32 ``total``: products of many slices in bfloat16 would lose what is small."""
    if left.dtype is total.dtype:
        total.addmm_(left, right)
    else:
        total.add_(left @ right)


def _slices(positions: int, rows: torch.Tensor, weight: torch.Tensor) -> Iterator[_Slice]:
    step = max(1, _SLICE_LOGITS[weight.device.type] // len(weight))
    starts = list(range(0, positions, step))
    pair_starts = torch.searchsorted(rows, torch.tensor([*starts, positions], device=rows.device)).tolist()
    for number, start in enumerate(starts):
        yield _Slice(slice(start, min(start + step, positions)), slice(*pair_starts[number : number + 2]))
