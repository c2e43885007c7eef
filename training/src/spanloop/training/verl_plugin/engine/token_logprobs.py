# pyright: basic
"""Log-probabilities of selected tokens, computed from one slice of the logits at a time.

The logits stay in the model's precision, and one slice at a time is float32. With a vocabulary of 50,000, float32
logits and their gradients for a whole batch would be most of a job's memory.
"""

from typing import Any, cast

import torch

_SLICE_ELEMENTS = 8 * 1024 * 1024
"""Number of logits that are float32 at a time: 32 MiB."""


def token_logprobs(
    logits: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Return ``log softmax(logits / temperature)[rows, labels]``, with gradients.

    Args:
        logits: Shape (positions, vocabulary).
        rows: Indices of positions; a position may occur for several tokens.
        labels: Token ids, parallel to ``rows``.
        temperature: Above zero.

    Returns:
        float32, parallel to ``rows``.
    """
    logprobs: Any = _TokenLogprobs.apply(logits, rows, labels, temperature)  # type: ignore[no-untyped-call]
    return cast("torch.Tensor", logprobs)


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor, labels: torch.Tensor, temperature: float
    ) -> torch.Tensor:
        """See :func:`token_logprobs`."""
        totals = torch.cat([(part.float() / temperature).logsumexp(1) for part in logits.split(_step(logits))])
        ctx.save_for_backward(logits, rows, labels, totals)
        ctx.temperature = temperature
        return logits[rows, labels].float() / temperature - totals[rows]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """``(one-hot - softmax) * gradient / temperature``, summed over the pairs of a position."""
        logits, rows, labels, totals = ctx.saved_tensors
        scaled = grads[0].float() / ctx.temperature
        weights = torch.zeros(len(logits), dtype=torch.float32).index_add_(0, rows, scaled)
        gradient = torch.empty_like(logits)
        step = _step(logits)
        for start in range(0, len(logits), step):
            part = slice(start, start + step)
            probabilities = logits[part].float().div_(ctx.temperature).sub_(totals[part, None]).exp_()
            gradient[part] = probabilities.mul_(-weights[part, None])
        # a position may have several labels, each once or more
        gradient.index_put_((rows, labels), scaled.to(gradient.dtype), accumulate=True)
        return gradient, None, None, None


def entropies(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the entropy of each position's distribution in nats, float32, shape (positions,), without gradient."""
    entropies_by_slice = []
    for part in logits.detach().split(_step(logits)):
        scores = (part.float() / temperature).log_softmax(1)
        entropies_by_slice.append(-(scores.exp() * scores).sum(1))
    return torch.cat(entropies_by_slice)


def _step(logits: torch.Tensor) -> int:
    return max(1, _SLICE_ELEMENTS // logits.shape[1])
