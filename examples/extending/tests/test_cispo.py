"""The gradient of CISPO's loss equals the formula, also where a weight is clipped."""

import pytest
import torch

from spanloop.training.recipes.policy_gradient import PolicyBatch
from spanloop.training.spec.job_spec import JobSpec


@pytest.mark.parametrize("start", [[-1.0, -2.0], [-1.5, -2.5]], ids=["one pass", "a later pass"])
def test_the_gradient_is_the_clipped_weight_times_the_advantage(start: list[float]) -> None:
    recipe = JobSpec.of(base="tiny", kind="cispo", epsilon_high=0.5).recipe
    sampler = torch.tensor([[-1.1, -4.0]])
    policy = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    advantages, mask = torch.tensor([[1.0, -1.0]]), torch.ones(1, 2)
    weights = recipe.importance_weights(torch.tensor([start]) - sampler, mask)
    recipe.token_losses(PolicyBatch(policy, torch.tensor([start]), weights, advantages, mask)).sum().backward()
    clipped = (policy.detach() - sampler).exp().clamp(max=1.5)
    torch.testing.assert_close(policy.grad, -clipped * advantages)
