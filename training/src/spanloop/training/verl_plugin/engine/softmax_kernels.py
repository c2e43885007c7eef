# pyright: basic
"""Softmax of a block of logits for log-probabilities and their gradient: in torch, and on CUDA in Triton.

Both compute in float32. Torch's operations take slices of the block; the kernels need no memory besides it.
"""

from collections.abc import Iterator
from typing import Protocol

import torch

from spanloop.training.models.memory_estimate import SLICE_LOGITS

from .attention_kernels import CudaKernel


class SoftmaxStatistics(Protocol):
    """See :func:`statistics_in_torch`."""

    def __call__(  # noqa: D102
        self, logits: torch.Tensor, temperature: float, logsumexps: torch.Tensor, entropies: torch.Tensor
    ) -> None: ...


class SoftmaxGradient(Protocol):
    """See :func:`gradient_in_torch`."""

    def __call__(  # noqa: D102
        self, logits: torch.Tensor, temperature: float, logsumexps: torch.Tensor, sums: torch.Tensor
    ) -> None: ...


def softmax_statistics(device: torch.device) -> SoftmaxStatistics:
    """Return what computes the statistics of rows of logits on a device."""
    if device.type != "cuda" or not CudaKernel.is_fused:
        return statistics_in_torch
    from .triton_kernels import softmax_statistics_on_cuda  # noqa: PLC0415 - Triton is there beside CUDA only

    return softmax_statistics_on_cuda


def softmax_gradients(device: torch.device) -> SoftmaxGradient:
    """Return what computes the gradient of rows of logits on a device."""
    if device.type != "cuda" or not CudaKernel.is_fused:
        return gradient_in_torch
    from .triton_kernels import softmax_gradient_on_cuda  # noqa: PLC0415 - Triton is there beside CUDA only

    return softmax_gradient_on_cuda


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
        scores = logits[part].float() / temperature
        logsumexps[part] = scores.logsumexp(1)
        if len(entropies):
            scores -= logsumexps[part, None]
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
        scores = logits[part].float() / temperature
        logits[part] = scores.sub_(logsumexps[part, None]).exp_().mul_(-sums[part, None])


def _slices(logits: torch.Tensor) -> Iterator[slice]:
    step = max(1, SLICE_LOGITS[logits.device.type] // logits.shape[1])
    return (slice(start, start + step) for start in range(0, len(logits), step))
