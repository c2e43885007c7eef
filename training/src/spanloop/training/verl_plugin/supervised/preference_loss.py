# pyright: basic
"""Direct Preference Optimization (Rafailov et al. 2023, equation 7) over episodes of several rows.

With ``p`` and ``r`` the sums of the log-probabilities of an episode's trained tokens under the policy and under the
reference, ``b`` better and ``w`` worse, a pair's margin is ``m = beta * ((p_b - r_b) - (p_w - r_w))`` and its loss is
``-log sigmoid(m)``; a batch's loss is the mean over its pairs. Pang et al. 2024 add ``-nll_weight * p_b / |b|`` for the
``|b|`` trained tokens of the better episode.

The other losses of a margin (:class:`~spanloop.training.recipes.choices.DpoLoss`): ``hinge`` is ``max(0, 1 - m)``;
``ipo`` is ``((m - 1/2) / beta)^2``, which is ``(h - 1 / (2 beta))^2`` for the difference ``h`` of the log-ratios. With
label smoothing ``e`` the sigmoid loss is ``-(1 - e) log sigmoid(m) - e log sigmoid(-m)``. Without a reference ``r`` is
0.

Invariant: the derivative of the loss by a row's log-probability does not depend on where the row is computed. So the
loss is computed from sums of the whole batch first, and the gradient is that of ``sum(weight * log-probability)`` in
any division into micro-batches (Gao et al. 2021, "GradCache", do the same for contrastive losses). A step needs the
memory of one micro-batch, not that of both episodes of a pair.
"""

from typing import NamedTuple

import torch
from torch.nn import functional

from spanloop.training.recipes.choices import DpoLoss


class PairedLogprobs(NamedTuple):
    """The rows of a batch of pairs; tensors of shape (rows,)."""

    policy: torch.Tensor
    """Sum of the log-probabilities of the row's trained tokens, float64."""
    reference: torch.Tensor
    """The same under the reference."""
    tokens: torch.Tensor
    """Number of the row's trained tokens."""
    pair: torch.Tensor
    """The row's pair, 0 to the number of pairs - 1, int64."""
    is_chosen: torch.Tensor
    """Whether the row is of the better episode."""


class PreferenceLoss(NamedTuple):
    """The loss of a batch of pairs."""

    loss: torch.Tensor
    """Scalar, float64."""
    row_weights: torch.Tensor
    """The derivative of the loss by each row's sum of log-probabilities, shape (rows,), float64."""
    row_losses: torch.Tensor
    """An equal share of each row of a pair in the pair's loss, shape (rows,), float64; they add up to the loss."""
    metrics: dict[str, float]


def preference_loss(
    rows: PairedLogprobs,
    *,
    beta: float,
    nll_weight: float = 0.0,
    loss: DpoLoss = DpoLoss.SIGMOID,
    label_smoothing: float = 0.0,
) -> PreferenceLoss:
    """Return the loss of a batch, its derivatives and the means over the pairs of what a user follows.

    Args:
        rows: Of the batch.
        beta: Scale of the implicit rewards.
        nll_weight: Of the better side's negative log-probability of a token.
        loss: Of a pair's margin.
        label_smoothing: Assumed share of pairs whose order is wrong; of the loss ``sigmoid``.
    """
    sign = torch.where(rows.is_chosen, 1.0, -1.0).double()
    log_ratio = rows.policy - rows.reference
    chosen, rejected = _per_pair(log_ratio, rows, chosen=True), _per_pair(log_ratio, rows, chosen=False)
    margin = beta * (chosen - rejected)
    pairs = len(margin)
    losses, slopes = _margin_loss(margin, beta, loss, label_smoothing)
    weights = sign * beta * slopes[rows.pair] / pairs
    if nll_weight:
        tokens = _per_pair(rows.tokens.double(), rows, chosen=True)
        logprob = _per_pair(rows.policy, rows, chosen=True)
        losses -= nll_weight * logprob / tokens
        weights -= rows.is_chosen * nll_weight / tokens[rows.pair] / pairs
    metrics = {
        "dpo/accuracy": (margin > 0).double().mean(),
        "dpo/margin": margin.mean(),
        "dpo/chosen_reward": beta * chosen.mean(),
        "dpo/rejected_reward": beta * rejected.mean(),
        "dpo/chosen_logprob": _per_pair(rows.policy, rows, chosen=True).mean(),
        "dpo/rejected_logprob": _per_pair(rows.policy, rows, chosen=False).mean(),
        "dpo/kl_k2": (log_ratio.square() / 2).mean() / rows.tokens.double().mean(),
    }
    row_losses = (losses / pairs / rows.pair.bincount(minlength=pairs))[rows.pair]
    return PreferenceLoss(losses.mean(), weights, row_losses, {name: float(value) for name, value in metrics.items()})


def _margin_loss(
    margin: torch.Tensor, beta: float, loss: DpoLoss, label_smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each pair and its derivative by the margin."""
    if loss is DpoLoss.HINGE:
        return functional.relu(1 - margin), -(margin < 1).double()
    if loss is DpoLoss.IPO:
        distance = (margin - 0.5) / beta
        return distance.square(), 2 * distance / beta
    right, wrong = 1 - label_smoothing, label_smoothing
    losses = -right * functional.logsigmoid(margin)
    slopes = -right * torch.sigmoid(-margin)
    if wrong:
        losses -= wrong * functional.logsigmoid(-margin)
        slopes += wrong * torch.sigmoid(margin)
    return losses, slopes


def _per_pair(values: torch.Tensor, rows: PairedLogprobs, *, chosen: bool) -> torch.Tensor:
    """Return the sum of ``values`` over the rows of one side of each pair."""
    on_side = rows.is_chosen == chosen
    sums = torch.zeros(int(rows.pair.max()) + 1, dtype=torch.float64)
    return sums.index_add(0, rows.pair[on_side], values[on_side].double())
