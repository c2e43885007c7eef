# pyright: basic
"""Metrics of a batch that verl does not report: the age of its rows, and the entropy as a mean over trained tokens."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from verl.workers.utils.padding import response_from_nested

ENTROPY = "actor/entropy"
"""Metric: mean over the trained tokens of the entropy of the policy's distribution, in nats."""
AGES = ("age_days", "age_versions")


def row_tags(row: Mapping[str, Any]) -> dict[str, float]:
    """Return a row's ages for verl's tags; NaN where an age is unknown."""
    return {name: math.nan if row.get(name) is None else float(row[name]) for name in AGES}


def row_ages(tags: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return mean and maximum of each age over the rows of a batch, ``rows/age_days/mean`` and so on."""
    metrics: dict[str, float] = {}
    for name in AGES:
        ages = [tag[name] for tag in tags if not math.isnan(tag.get(name, math.nan))]
        if ages:
            metrics |= {f"rows/{name}/mean": sum(ages) / len(ages), f"rows/{name}/max": max(ages)}
    return metrics


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
