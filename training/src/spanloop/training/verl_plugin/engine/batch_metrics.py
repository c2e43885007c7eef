# pyright: basic
"""A metric of a batch that verl does not report: the entropy as a mean over trained tokens."""

import torch
from verl.workers.utils.padding import response_from_nested

ENTROPY = "actor/entropy"
"""Metric: mean over the trained tokens of the entropy of the policy's distribution, in nats."""


def nested_entropy(entropy: torch.Tensor, mask: torch.Tensor) -> float:
    """Return the mean entropy of the trained tokens.

    Args:
        entropy: Nested, one number for each token of each row, at the token before the predicted one.
        mask: Nested, the response mask of each row.
    """
    return mean_entropy(response_from_nested(entropy, mask).to_padded_tensor(0.0), mask.to_padded_tensor(0.0))


def mean_entropy(entropy: torch.Tensor, mask: torch.Tensor) -> float:
    """Return the mean entropy where ``mask`` is set; padded tensors of one shape.

    verl aggregates its entropy like the loss, so its scale would depend on the loss aggregation.
    """
    return float(entropy[mask.bool()].mean().item())
