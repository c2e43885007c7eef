"""The gradient of CISPO's loss equals the formula, also where a weight is clipped."""

import pytest
import torch

from spanloop.training.recipes.policy_gradient import PolicyBatch, PolicyGradient
from spanloop.training.spec.job_spec import JobSpec


@pytest.mark.parametrize("start", [[-1.0, -2.0], [-1.5, -2.5]], ids=["one pass", "a later pass"])
def test_the_gradient_is_the_clipped_weight_times_the_advantage(start: list[float]) -> None:
    recipe = JobSpec.of(base="tiny", kind="cispo", epsilon_high=0.5).recipe
    assert isinstance(recipe, PolicyGradient)
    sampler = torch.tensor([[-1.1, -4.0]])
    policy = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)
    weights = recipe.importance_weights(torch.tensor([start]) - sampler, mask)
    losses = recipe.token_losses(PolicyBatch(policy, torch.tensor([start]), weights, advantages, mask))
    (gradient,) = torch.autograd.grad(losses.sum(), policy)
    clipped = (policy.detach() - sampler).exp().clamp(max=1.5)
    torch.testing.assert_close(gradient, -clipped * advantages)
