"""The backbones ``debug`` and ``ray`` compute the same; each job here is a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - half annotated

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.models.serving_copy import serving_path
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.run.monitor.metrics import StepMetrics
from spanloop.training.run.planning import FILLING_ROW_TOKENS
from spanloop.training.spec.choices import Backbone
from spanloop.training.verl_plugin.drift import KL
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import assert_same_gradients, debug_plan, train_in_subprocess, trained_weights, write_dataset
from ..recipe_kinds import is_policy_gradient
from ..training_running import Runner, url_of
from ..training_seeding import seed_groups


def trained(
    model: Path, folder: Path, kind: str, sizes: Mapping[str, Any] = MappingProxyType({}), **changes: object
) -> tuple[TrainPlan, list[StepMetrics]]:
    write_dataset(model, folder, kind=kind, **sizes)
    plan = debug_plan(model, folder, kind=kind, **changes)
    return plan, train_in_subprocess(plan)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["dr_grpo", "ppo", "sft"])
def test_both_backbones_compute_the_same_gradients(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    debug, debug_steps = trained(tiny_model, tmp_path / "debug", kind)
    ray, ray_steps = trained(tiny_model, tmp_path / "ray", kind, backbone=Backbone.RAY)
    assert_same_gradients(debug, ray, tolerance=1e-5)
    measured = ("timing", "perf", "mfu")
    for one, other in zip(debug_steps, ray_steps, strict=True):
        assert one.values.keys() == other.values.keys()
        for name in one.values:
            if not any(part in name for part in measured):
                assert other.values[name] == pytest.approx(one.values[name], rel=1e-4, abs=1e-6), name


BREAKPOINT = """
from spanloop.training.verl_plugin.engine import token_logprobs as module

original = module.token_logprobs

def stopping(hidden, weight, *rest, **settings):
    breakpoint()
    return original(hidden, weight, *rest, **settings)

module.token_logprobs = stopping
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_in_the_foreground_stops_at_a_breakpoint_and_reads_the_debuggers_commands(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    plugins = tmp_path / "plugins"
    (plugins / "stop-1.0.dist-info").mkdir(parents=True)
    (plugins / "stop-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: stop\nVersion: 1.0\n")
    (plugins / "stop-1.0.dist-info" / "entry_points.txt").write_text("[verl.plugins]\nstop = stopping_loss\n")
    (plugins / "stopping_loss.py").write_text(BREAKPOINT)
    options = ["--steps", "1", "--backbone", "debug", "--foreground", "--data-dir", str(runner.data_dir.path)]
    completed = subprocess.run(
        [str(Path(sys.executable).with_name("spanloop")), "train", "tiny", *options],
        env=os.environ
        | {CLICKHOUSE_URL_ENV: url_of(runner.address), "PYTHONPATH": f"{plugins}:{os.environ.get('PYTHONPATH', '')}"},
        input="p 'vocabulary', len(weight)\nimport sys; sys.breakpointhook = print\nc\n",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "('vocabulary', 400)" in completed.stdout
    (job,) = JobApi(runner.data_dir).list()
    assert (job.state, job.attempt, job.model_version) == (JobState.SUCCEEDED, 1, "tiny@v2")
    assert f"{job.id}: succeeded tiny@v2" in completed.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["dr_grpo", "ppo", "sft"])
def test_two_ranks_compute_what_one_computes(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    """Nine rows of three groups are uneven for two ranks, and no micro-batch has them all."""
    sizes = {"groups": 3, "episodes": 3}
    changes = {"batch_size": 3 if is_policy_gradient(kind) else 4, "micro_batch_tokens": FILLING_ROW_TOKENS}
    one, one_steps = trained(tiny_model, tmp_path / "one", kind, sizes, **changes)
    two, two_steps = trained(
        tiny_model, tmp_path / "two", kind, sizes, **changes, backbone=Backbone.RAY, gpus_per_node=2
    )
    assert_same_gradients(one, two, tolerance=1e-4)
    for first, second in zip(one_steps, two_steps, strict=True):
        for name in ("actor/pg_loss", "actor/grad_norm", "actor/entropy", KL, "train/loss", "train/grad_norm"):
            assert second.values.get(name, 0.0) == pytest.approx(first.values.get(name, 0.0), rel=1e-3, abs=1e-5), name
    expected, got = trained_weights(one, 1), trained_weights(two, 1)
    assert expected.keys() == got.keys()
    for name, weights in expected.items():
        # Adam's first step is the learning rate times the gradient's sign, so a gradient near zero may move either way
        assert (weights - got[name]).abs().mean() < 1e-2 * one.optimiser.learning_rate, name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_with_an_adapter_on_two_ranks_registers_a_normal_model(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(
        base="tiny", steps=2, batch_groups=3, lora_rank=4, learning_rate=1e-2, kl_coefficient=0.01, gpus_per_node=2
    )
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    registry = Registry(runner.data_dir)
    before, after = (
        load_file(registry.get(reference).path / "model.safetensors") for reference in ("tiny@v1", job.model_version)
    )
    assert before.keys() == after.keys()
    assert {name for name in before if not after[name].equal(before[name])} == {
        name for name in before if "_proj" in name
    }
    assert serving_path(registry.get(job.model_version)) == registry.get(job.model_version).path
