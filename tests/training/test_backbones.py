"""The backbones ``debug`` and ``ray`` compute the same; each job here is a process of its own."""

from pathlib import Path

import pytest
import torch

from spanloop.semconv.enums import JobKind
from spanloop.training.job_spec import Backbone
from spanloop.training.metrics import StepMetrics
from spanloop.training.verl_plugin.train_plan import TrainPlan

from .debug_training import debug_plan, first_gradients, train_in_subprocess, write_dataset


def trained(model: Path, folder: Path, kind: JobKind, **changes: object) -> tuple[TrainPlan, list[StepMetrics]]:
    write_dataset(model, folder, kind=kind)
    plan = debug_plan(model, folder, kind=kind, **changes)
    return plan, train_in_subprocess(plan)


def assert_same_gradients(first: TrainPlan, second: TrainPlan, *, tolerance: float) -> None:
    """Largest difference relative to the largest gradient."""
    expected, got = first_gradients(first), first_gradients(second)
    assert expected.keys() == got.keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    assert largest > 0
    for number, gradient in expected.items():
        torch.testing.assert_close(got[number], gradient, rtol=0, atol=float(largest) * tolerance)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", list(JobKind))
def test_both_backbones_compute_the_same_gradients(kind: JobKind, tiny_model: Path, tmp_path: Path) -> None:
    debug, debug_steps = trained(tiny_model, tmp_path / "debug", kind)
    ray, ray_steps = trained(tiny_model, tmp_path / "ray", kind, backbone=Backbone.RAY)
    assert_same_gradients(debug, ray, tolerance=1e-5)
    timed = ("timing", "perf", "global_seqlen")
    for one, other in zip(debug_steps, ray_steps, strict=True):
        assert one.values.keys() == other.values.keys()
        for name in one.values:
            if not name.startswith(timed):
                assert other.values[name] == pytest.approx(one.values[name], rel=1e-4, abs=1e-6), name
