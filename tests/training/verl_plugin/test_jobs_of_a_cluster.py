"""Jobs on a running Ray cluster: several at a time, each alone with its rows, and nothing of them is left."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.training.run.verl_process import VerlProcess, failure_of, verl_process
from spanloop.training.spec.choices import Backbone
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import debug_plan, train_in_subprocess, trained_weights, write_dataset
from ..ray_nodes import NOTHING, RayNodes, ray_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """One node."""
    with ray_nodes(cpus=3) as nodes:
        yield nodes


def plan_of(model: Path, folder: Path, *, seed: int = 0, **changes: Any) -> TrainPlan:
    write_dataset(model, folder, kind=changes.get("kind", "dr_grpo"), seed=seed)
    plan = debug_plan(model, folder, backbone=Backbone.RAY, **changes)
    # the same job id under another token is another attempt
    return plan.model_copy(update={"job_id": f"job-{seed}"})


def assert_empty(cluster: RayNodes) -> None:
    give_up_at = time.monotonic() + 60
    while (left := cluster.left()) != NOTHING:
        assert time.monotonic() < give_up_at, left
        time.sleep(1)


def failed(plan: TrainPlan) -> VerlProcess:
    with verl_process(plan, plan.failure_path.with_name("plan.json"), token=1) as run:
        assert run.process.wait(timeout=550) == 1
        return run


def test_jobs_side_by_side_compute_what_each_computes_alone(
    cluster: RayNodes, tiny_model: Path, tmp_path: Path
) -> None:
    """Two policy gradients with different rows, at the same time."""
    kinds = ("dr_grpo", "ppo")
    plan = partial(plan_of, tiny_model, steps=3)
    alone = [plan(tmp_path / f"alone-{kind}", kind=kind, seed=seed) for seed, kind in enumerate(kinds)]
    beside = [
        plan(tmp_path / f"beside-{kind}", kind=kind, seed=seed, ray_address=cluster.address)
        for seed, kind in enumerate(kinds)
    ]
    for each in alone:
        train_in_subprocess(each)
    with ThreadPoolExecutor(len(beside)) as threads:
        for steps in threads.map(train_in_subprocess, beside):
            assert [step.step for step in steps] == [1, 2, 3]
    for one, other in zip(alone, beside, strict=True):
        expected, actual = trained_weights(one), trained_weights(other)
        assert expected.keys() == actual.keys()
        for name, weights in expected.items():
            assert weights.equal(actual[name]), name
    first, second = map(trained_weights, beside)
    assert any(not weights.equal(second[name]) for name, weights in first.items())
    assert_empty(cluster)


def test_a_job_that_fails_leaves_nothing_on_the_cluster(cluster: RayNodes, tiny_model: Path, tmp_path: Path) -> None:
    plan = plan_of(tiny_model, tmp_path, ray_address=cluster.address)
    pl.read_parquet(plan.dataset_path).drop("advantages").write_parquet(plan.dataset_path)
    assert "has no advantages" in failure_of(failed(plan)).what
    assert_empty(cluster)


@pytest.mark.parametrize("kind", ["dr_grpo", "sft"])
def test_a_killed_job_leaves_nothing_on_the_cluster(
    kind: str, cluster: RayNodes, tiny_model: Path, tmp_path: Path
) -> None:
    plan = plan_of(tiny_model, tmp_path, kind=kind, steps=1000, save_every_steps=1000, ray_address=cluster.address)
    with verl_process(plan, tmp_path / "plan.json", token=1) as run:
        give_up_at = time.monotonic() + 240
        while not plan.metrics_path.exists():
            assert run.exit_status() is None
            assert time.monotonic() < give_up_at
            time.sleep(0.2)
        assert cluster.left() != NOTHING
        os.kill(run.process.pid, signal.SIGKILL)
        run.process.wait()
    assert_empty(cluster)


@pytest.mark.parametrize("waits", [True, False])
def test_nodes_that_the_cluster_does_not_have_are_waited_for_or_refused(
    *, waits: bool, cluster: RayNodes, tiny_model: Path, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"nodes": 2, "ray_address": cluster.address, "wait_for_nodes": waits}
    error = failure_of(failed(plan_of(tiny_model, tmp_path, **changes)))
    assert f"asks for 2 nodes with 1 CPU each, and the Ray cluster {cluster.address} has 1." in error.what
    assert error.is_transient == waits
    assert_empty(cluster)
