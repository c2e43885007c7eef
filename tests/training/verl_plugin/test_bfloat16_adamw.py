"""AdamW with moments in bfloat16."""

from pathlib import Path

import pytest
import torch

from spanloop.training.spec.choices import OptimizerDtype
from spanloop.training.verl_plugin.engine.bfloat16_adamw import AdamW, round_into

from ..debug_training import debug_plan, train_here, trained_weights, write_dataset


@pytest.mark.parametrize("value", [1.001, -1.001, 3e-9, -7.77e5, 0.0])
def test_rounding_goes_to_a_neighbour_and_has_the_right_mean(value: float) -> None:
    rounded = torch.empty(20_000, dtype=torch.bfloat16)
    round_into(rounded, torch.full((20_000,), value), torch.Generator().manual_seed(0))
    neighbours = sorted({float(each) for each in rounded})
    assert len(neighbours) == (1 if value == 0 else 2)
    spacing = neighbours[-1] - neighbours[0]
    assert float(rounded.float().mean() - value) == pytest.approx(0, abs=0.02 * spacing + 1e-30)


def run(optimizer: torch.optim.Optimizer, weights: torch.Tensor, steps: int) -> None:
    """Minimise a quadratic of different curvatures, with noisy gradients."""
    noise = torch.Generator().manual_seed(1)
    curvature = torch.logspace(-1, 1, weights.numel())
    for _ in range(steps):
        weights.grad = curvature * weights.detach() + 0.1 * torch.randn(weights.shape, generator=noise)
        optimizer.step()


def test_it_follows_float32() -> None:
    ours, torchs = (torch.ones(64, requires_grad=True) for _ in range(2))
    run(AdamW([ours], lr=0.01, weight_decay=0.1), ours, 200)
    run(torch.optim.AdamW([torchs], lr=0.01, weight_decay=0.1), torchs, 200)
    torch.testing.assert_close(ours, torchs, rtol=0, atol=0.02)
    assert float((1 - torchs.detach()).mean()) > 0.5


def test_the_second_moment_decays() -> None:
    """Rounded to the nearest number it would stay as it is."""
    weights = torch.ones(1000, requires_grad=True)
    optimizer = AdamW([weights], lr=0.0)
    for gradient in [1.0] + [0.0] * 1000:
        weights.grad = torch.full((1000,), gradient)
        optimizer.step()
    square = optimizer.state[weights]["exp_avg_sq"]
    assert square.dtype == torch.bfloat16
    assert float(square.float().mean()) == pytest.approx(0.001 * 0.999**1000, rel=0.02)


def test_a_resumed_optimizer_continues_as_if_it_had_not_stopped() -> None:
    whole, parts = (torch.ones(8, requires_grad=True) for _ in range(2))
    optimizer, first = AdamW([whole]), AdamW([parts])
    for step in range(4):
        whole.grad = torch.linspace(-1, 1, 8) + step
        optimizer.step()
        parts.grad = whole.grad
        if step == 2:
            saved, first = first.state_dict(), AdamW([parts])
            first.load_state_dict(saved)
        first.step()
    assert parts.equal(whole)
    assert first.state[parts]["exp_avg"].dtype == torch.bfloat16


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "ppo"])
def test_a_job_trains_with_it(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind, optimizer_dtype=OptimizerDtype.BFLOAT16)
    train_here(plan)
    first = plan.checkpoint_dir / "global_step_1"
    for path in first.rglob("optim_world_size_*.pt"):
        for state in torch.load(path, weights_only=False)["state"].values():
            assert state["exp_avg"].dtype == state["exp_avg_sq"].dtype == torch.bfloat16
    # going on from the first step gives the second one's weights
    write_dataset(tiny_model, tmp_path / "again", kind=kind)
    changes = {"optimizer_dtype": OptimizerDtype.BFLOAT16, "resume_from": first}
    again = debug_plan(tiny_model, tmp_path / "again", kind=kind, **changes)
    train_here(again)
    expected, got = trained_weights(plan, 2), trained_weights(again, 2)
    for name, weights in expected.items():
        torch.testing.assert_close(got[name], weights, rtol=0, atol=1e-6)
