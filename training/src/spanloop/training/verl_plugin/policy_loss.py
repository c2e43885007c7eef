# pyright: basic
"""The policy loss of a single pass over a batch, and the weights that correct for the sampler.

With one update of a batch, the policy at the start of the step is the policy that the update differentiates. So the
log-probabilities that PPO recomputes beforehand equal those of the update's own forward pass, detached. Loss and
gradient are those of verl's decoupled objective (ratio 1, truncated importance weight against the sampler), for three
quarters of the compute. A ratio of 1 is never clipped, so verl's ``vanilla`` and ``gspo`` differ in nothing but the
weights.
"""

from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.workers.utils.padding import response_from_nested

from spanloop.training.recipes.policy_gradient import SINGLE_UPDATE_LOSS, SINGLE_UPDATE_ROW_LOSS, TRUNCATE_WEIGHTS_AT

GAP = "rollout_corr/logprob_abs_diff_mean"
"""Metric: mean over the trained tokens of ``|log p_engine - log p_sampler|``, in nats, before the step's update."""


def token_weights(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return the truncated importance weight of each token; ``log_ratio`` (rows, tokens) is policy to sampler."""
    return log_ratio.exp().clamp(max=TRUNCATE_WEIGHTS_AT)


def row_weights(log_ratio: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the truncated importance weight of each row, for all of its tokens (rows, tokens).

    ``exp(mean over trained tokens of log_ratio)``: the length-normalised ratio of a sequence (Zheng et al. 2025,
    equation 7), here of the policy to the sampler.
    """
    tokens = mask.sum(-1, keepdim=True).clamp(min=1)
    mean = (log_ratio * mask).sum(-1, keepdim=True) / tokens
    return token_weights(mean).expand_as(log_ratio)


@register_policy_loss(SINGLE_UPDATE_LOSS)
def single_pass_loss(  # noqa: PLR0917 - verl's signature
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Verl's policy loss interface; all tensors (rows, response tokens), ``old_log_prob`` the sampler's."""
    weights = token_weights(log_prob.detach() - old_log_prob)
    return _loss(log_prob, weights * advantages, response_mask, loss_agg_mode, config)


@register_policy_loss(SINGLE_UPDATE_ROW_LOSS)
def single_pass_row_loss(  # noqa: PLR0917 - verl's signature
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "seq-mean-token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, dict[str, Any]]:
    """As :func:`single_pass_loss`, with one importance weight for each row."""
    weights = row_weights(log_prob.detach() - old_log_prob, response_mask)
    return _loss(log_prob, weights * advantages, response_mask, loss_agg_mode, config)


def _loss(
    log_prob: torch.Tensor, weighted: torch.Tensor, mask: torch.Tensor, loss_agg_mode: str, config: Any
) -> tuple[torch.Tensor, dict[str, Any]]:
    ratio = (log_prob - log_prob.detach()).exp()
    loss = agg_loss(loss_mat=-weighted * ratio, loss_mask=mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    return loss, {}


def sampler_gap(log_probs: torch.Tensor, data: Any) -> dict[str, list[float]]:
    """Compare the engine's log-probabilities of a batch with the sampler's.

    Args:
        log_probs: Nested tensor with one number for each token of each row.
        data: verl's batch, with nested ``rollout_log_probs`` and ``response_mask``.

    Returns:
        verl's ``rollout_corr/`` metrics, and :data:`GAP`.
    """
    mask = data["response_mask"]
    engine, sampler, response_mask = (
        tensor.to_padded_tensor(0.0)
        for tensor in (response_from_nested(log_probs, mask), data["rollout_log_probs"], mask)
    )
    _, _, metrics = compute_rollout_correction_and_rejection_mask(
        old_log_prob=engine,
        rollout_log_prob=sampler,
        response_mask=response_mask,
        rollout_is="token",
        rollout_is_threshold=TRUNCATE_WEIGHTS_AT,
    )
    return {name: [value] for name, value in metrics.items()} | {GAP: [mean_gap(engine, sampler, response_mask)]}


def mean_gap(engine: torch.Tensor, sampler: torch.Tensor, mask: torch.Tensor) -> float:
    """Return the mean absolute difference where ``mask`` is set; padded tensors of one shape."""
    selected = mask.bool()
    return (engine[selected] - sampler[selected]).abs().mean().item()
