"""Training on two Ray nodes, which are processes with addresses of their own on this machine."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.run.planning import FILLING_ROW_TOKENS
from spanloop.training.run.verl_process import failure_of, verl_process
from spanloop.training.spec.choices import Backbone
from spanloop.training.verl_plugin.drift import KL
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import assert_same_gradients, debug_plan, train_in_subprocess, trained_weights, write_dataset
from ..ray_nodes import RayNodes, ray_nodes
from ..recipe_kinds import is_policy_gradient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    with ray_nodes(2, cpus=4) as nodes:
        yield nodes


def plan_of(model: Path, folder: Path, kind: str, **changes: Any) -> TrainPlan:
    """Nine rows of three groups are uneven for two ranks, and no micro-batch has them all."""
    write_dataset(model, folder, kind=kind, groups=3, episodes=3)
    sizes = {"batch_size": 3 if is_policy_gradient(kind) else 4, "micro_batch_tokens": FILLING_ROW_TOKENS}
    return debug_plan(model, folder, kind=kind, **sizes, **changes)


@pytest.mark.parametrize("kind", ["dr_grpo", "ppo", "sft"])
def test_two_nodes_compute_what_one_rank_computes(
    kind: str, cluster: RayNodes, tiny_model: Path, tmp_path: Path
) -> None:
    one = plan_of(tiny_model, tmp_path / "one", kind)
    two = plan_of(
        tiny_model, tmp_path / "two", kind, backbone=Backbone.RAY, ray_address=cluster.address, nodes=2,
        samples_path=tmp_path / "two" / "samples-1.jsonl",
    )  # fmt: skip
    one_steps, two_steps = train_in_subprocess(one), train_in_subprocess(two)
    assert_same_gradients(one, two, tolerance=1e-4)
    for first, second in zip(one_steps, two_steps, strict=True):
        for name in ("actor/pg_loss", "actor/grad_norm", "actor/entropy", KL, "train/loss", "train/grad_norm"):
            assert second.values.get(name, 0.0) == pytest.approx(first.values.get(name, 0.0), rel=1e-3, abs=1e-5), name
    expected, actual = trained_weights(one, 1), trained_weights(two, 1)
    assert expected.keys() == actual.keys()
    for name, weights in expected.items():
        # Adam's first step is the learning rate times the gradient's sign, so a gradient near zero may move either way
        assert (weights - actual[name]).abs().mean() < 1e-2 * one.optimiser.learning_rate, name
    # each rank has written its own rows
    assert sorted(path.name for path in (tmp_path / "two").glob("samples-*")) == [
        "samples-1-1.jsonl",
        "samples-1.jsonl",
    ]


@pytest.mark.parametrize("kind", ["dr_grpo"])
def test_a_killed_node_ends_the_attempt_and_the_next_one_goes_on_from_the_checkpoint(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    with ray_nodes(2, cpus=4) as cluster:
        plan = plan_of(
            tiny_model, tmp_path, kind, backbone=Backbone.RAY, ray_address=cluster.address, nodes=2, steps=40,
            save_every_steps=2,
        )  # fmt: skip
        with verl_process(plan, tmp_path / "plan.json", token=1) as run:
            give_up_at = time.monotonic() + 240
            while not latest_checkpoint(plan.checkpoint_dir):
                assert run.exit_status() is None
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            cluster.kill(1)
            assert run.process.wait(timeout=90) == 1
            error = failure_of(run)
        assert "the Ray node 127.0.0.2" in error.what
        assert error.is_transient
        cluster.start(1)
        checkpoint = latest_checkpoint(plan.checkpoint_dir)
        assert checkpoint is not None
        assert checkpoint.step < 40
        resumed = plan.model_copy(update={"resume_from": checkpoint.path})
        steps = train_in_subprocess(resumed)
        assert [step.step for step in steps][-(40 - checkpoint.step) :] == [*range(checkpoint.step + 1, 41)]
        finished = latest_checkpoint(plan.checkpoint_dir)
        assert finished is not None
        assert finished.step == 40
