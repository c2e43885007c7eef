"""The losses of the recipes in NumPy, row by row and token by token, in float64."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class Row(NamedTuple):
    """A row's numbers, one for each response token."""

    mask: Array
    advantages: Array
    sampler: Array
    """Log-probabilities of the policy that sampled."""
    start: Array
    """Log-probabilities of the policy before the step's first update."""
    policy: Array
    """Log-probabilities of the policy that is differentiated; equal to ``start`` in a single pass."""
    base: Array
    """Log-probabilities of the base."""


def importance_weights(kind: str, row: Row) -> Array:
    """Of the policy at the step's start to the sampler, truncated at 2."""
    log_ratio = row.start - row.sampler
    if kind == "gspo":
        log_ratio = np.full_like(log_ratio, log_ratio[row.mask > 0].mean())
    return np.minimum(np.exp(log_ratio), 2.0)


def token_losses(kind: str, row: Row, clip: tuple[float, float] | None = None) -> Array:
    """The clipped objective, weighted; ``clip`` are the ranges below and above 1, by default the kind's."""
    log_ratio = row.policy - row.start
    lower, upper = clip or ((3e-4, 4e-4) if kind == "gspo" else (0.2, 0.2))
    if kind == "gspo":
        log_ratio = np.full_like(log_ratio, log_ratio[row.mask > 0].mean())
    ratio = np.exp(log_ratio)
    losses = np.empty_like(ratio)
    for token, advantage in enumerate(row.advantages):
        clipped = min(max(ratio[token], 1 - lower), 1 + upper)
        losses[token] = max(-advantage * ratio[token], -advantage * clipped)
        if advantage < 0 and kind != "gspo":
            losses[token] = min(losses[token], -advantage * 3)
    return losses * importance_weights(kind, row)


def divergence(row: Row) -> Array:
    """Schulman's k3 of the policy to the base, at most 10."""
    log_ratio = row.base - row.policy
    return np.minimum(np.exp(log_ratio) - log_ratio - 1, 10.0)


def aggregated(mode: str, losses: list[Array], masks: list[Array], longest: int) -> float:
    """One number from the losses of the tokens."""
    sums = [float((loss * mask).sum()) for loss, mask in zip(losses, masks, strict=True)]
    if mode == "token-mean":
        return sum(sums) / sum(float(mask.sum()) for mask in masks)
    if mode == "seq-mean-token-mean":
        sums = [total / mask.sum() for total, mask in zip(sums, masks, strict=True)]
    return float(np.mean(sums)) / (longest if mode == "seq-mean-token-sum-norm" else 1)


def policy_loss(  # noqa: PLR0917 - the numbers of one formula
    kind: str,
    mode: str,
    rows: list[Row],
    longest: int,
    kl_coefficient: float,
    clip: tuple[float, float] | None = None,
) -> float:
    """The loss of a batch; ``longest`` divides the sums of ``seq-mean-token-sum-norm``."""
    masks = [row.mask for row in rows]
    loss = aggregated(mode, [token_losses(kind, row, clip) for row in rows], masks, longest)
    return loss + kl_coefficient * aggregated(mode, [divergence(row) for row in rows], masks, longest)


def estimated_advantages(
    rewards: list[Array], values: list[Array], masks: list[Array], decay: float
) -> tuple[list[Array], list[Array]]:
    """Generalised advantage estimation over the trained tokens of each row, normalised over the batch; and returns."""
    advantages, returns = [np.zeros_like(each) for each in values], [np.zeros_like(each) for each in values]
    for row, of_tokens in enumerate(rewards):
        following, later = 0.0, 0.0
        for token in reversed(np.flatnonzero(masks[row])):
            gain = of_tokens[token] + following - values[row][token]
            later = gain + decay * later
            following = values[row][token]
            advantages[row][token] = later
            returns[row][token] = later + values[row][token]
    everything = np.concatenate([each[mask > 0] for each, mask in zip(advantages, masks, strict=True)])
    scale = np.sqrt(everything.var(ddof=1) + 1e-8)
    return [(each - everything.mean()) / scale for each in advantages], returns


def value_loss(
    predicted: list[Array], values: list[Array], returns: list[Array], masks: list[Array], clip: float = 0.5
) -> float:
    """Half the squared error, of the worse of the prediction and the one clipped to ``clip`` around the old value."""
    losses: list[Array] = []
    for new, old, target in zip(predicted, values, returns, strict=True):
        clipped = np.clip(new, old - clip, old + clip)
        losses.append(np.maximum((new - target) ** 2, (clipped - target) ** 2) / 2)
    return aggregated("token-mean", losses, masks, 1)
