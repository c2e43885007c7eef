"""Settings of verl's engine that save a GPU's memory, run here on a CPU: they change no gradient."""

from pathlib import Path

import pytest
import torch

from spanloop.training.verl_plugin import main
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import debug_plan, first_gradients, train_here, trained_weights, write_dataset


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sft", "ppo"])
def test_offloaded_weights_train_in_the_same_way(
    kind: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a job on a CPU is refused it
    def unchanged(plan: TrainPlan) -> TrainPlan:
        return plan

    monkeypatch.setattr(main, "resolve_compute", unchanged)
    plans = [
        debug_plan(tiny_model, tmp_path / str(offload), kind=kind, steps=1, offload=offload)
        for offload in (False, True)
    ]
    for plan in plans:
        write_dataset(tiny_model, plan.dataset_path.parent, kind=kind)
        train_here(plan)
    expected, got = (first_gradients(plan) for plan in plans)
    assert expected.keys() == got.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(got[key], gradient, rtol=0, atol=1e-6)
    before, after = (trained_weights(plan) for plan in plans)
    for name, weights in before.items():
        assert after[name].equal(weights), name
