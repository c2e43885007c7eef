# pyright: basic
"""The policy loss of a recipe as verl calls it, and the comparison of the policy with the sampler.

With one update of a batch, the policy at the start of the step is the policy that the update differentiates. So the
log-probabilities that PPO recomputes beforehand equal those of the update's own forward pass, detached. Loss and
gradient are those of verl's decoupled objective (ratio 1, importance weight against the sampler), for three quarters of
the compute.

verl imports this module for :class:`RecipeLossConfig`, in each process that trains; the recipe is looked up there.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.workers.config import PolicyLossConfig
from verl.workers.utils.padding import response_from_nested

from spanloop.training.recipes.policy_gradient import TRUNCATE_WEIGHTS_AT, PolicyBatch, PolicyGradient
from spanloop.training.recipes.registry import parse_recipe

from .overrides.policy_gradient import RECIPE_LOSS

GAP = "rollout_corr/logprob_abs_diff_mean"
"""Metric: mean over the trained tokens of ``|log p_engine - log p_sampler|``, in nats, before the step's update."""


@dataclass
class RecipeLossConfig(PolicyLossConfig):
    """verl's configuration of a policy loss, with the recipe."""

    recipe: str = ""
    """The settings as JSON."""
    single_pass: bool = False
    """Whether ``old_log_prob`` is the sampler's, because each batch has one update."""


@cache
def _recipe(text: str) -> PolicyGradient:
    recipe = parse_recipe(json.loads(text))
    if not isinstance(recipe, PolicyGradient):
        raise TypeError(f"got the recipe {recipe.kind}, expected a policy gradient")
    return recipe


@register_policy_loss(RECIPE_LOSS)
def recipe_loss(  # noqa: PLR0917 - verl's signature
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Verl's policy loss interface; all tensors (rows, response tokens)."""
    settings: RecipeLossConfig = config.policy_loss
    recipe, mask = _recipe(settings.recipe), response_mask
    if settings.single_pass:
        start = log_prob.detach()
        weights = recipe.importance_weights(start - old_log_prob, mask)
    else:
        start = old_log_prob
        weights = torch.ones_like(start) if rollout_is_weights is None else rollout_is_weights
    losses = recipe.token_losses(PolicyBatch(log_prob, start, weights, advantages, mask))
    loss = agg_loss(loss_mat=losses, loss_mask=mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info)
    if settings.single_pass:
        return loss, {}
    drift = ((start - log_prob.detach()) * mask).sum() / mask.sum().clamp(min=1)
    return loss, {"actor/ppo_kl": drift.item()}


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
