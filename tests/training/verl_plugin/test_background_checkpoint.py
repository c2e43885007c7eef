# pyright: basic
"""Checkpoints that are written beside the next steps: what they hold, and which one is left by a training that ends."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import debug_plan, train_here, trained_weights, write_dataset

pytestmark = pytest.mark.filterwarnings("ignore")

SLOW_WRITER = """
import sys, time
from pathlib import Path
import torch
from spanloop.training.verl_plugin import main

save = torch.save
def slow(*arguments, **settings):
    time.sleep(0.2)
    save(*arguments, **settings)
torch.save = slow
from spanloop.training.verl_plugin.engine import cpu_platform
import os
os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": cpu_platform.__name__}
from spanloop.training.verl_plugin.engine import background_checkpoint
background_checkpoint.writes_beside = lambda module: True
sys.exit(main.main(Path(sys.argv[1])))
"""


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module. Checkpoints are written as on a GPU, and only after the next step has begun."""
    # verl warns about itself when it is imported
    module: Any = importlib.import_module("spanloop.training.verl_plugin.engine.background_checkpoint")
    monkeypatch.setattr(module, "writes_beside", lambda _: True)
    late: Any = module._Writer._run

    def run(writer: Any) -> None:
        time.sleep(0.3)
        late(writer)

    monkeypatch.setattr(module._Writer, "_run", run)
    return module


def trained(model: Path, folder: Path, kind: str, **changes: Any) -> TrainPlan:
    write_dataset(model, folder, kind=kind)
    plan = debug_plan(model, folder, kind=kind, **changes)
    train_here(plan)
    return plan


@pytest.mark.parametrize("kind", ["dr_grpo", "sft"])
def test_a_checkpoint_written_beside_the_next_step_is_that_of_its_own_step(
    kind: str, beside: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = trained(tiny_model, tmp_path / "beside", kind, max_ckpt_to_keep=2)
    monkeypatch.setattr(beside, "writes_beside", lambda _: False)
    stock = trained(tiny_model, tmp_path / "stock", kind, max_ckpt_to_keep=2)
    for step in (1, 2):
        weights, expected = trained_weights(plan, step), trained_weights(stock, step)
        assert weights.keys() == expected.keys()
        assert all(weights[name].equal(expected[name]) for name in expected)
        for path in sorted((stock.checkpoint_dir / f"global_step_{step}").rglob("*_world_size_1_rank_0.pt")):
            other = plan.checkpoint_dir / path.relative_to(stock.checkpoint_dir)
            assert_same(torch.load(other, weights_only=False), torch.load(path, weights_only=False))


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert getattr(one, "_local_tensor", one).equal(getattr(other, "_local_tensor", other))
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one.keys() - {"rng"}:
            assert_same(one[key], other[key])


def test_tensors_that_share_memory_share_their_copy(beside: Any) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    content = {"head": weight, "embedding": weight.view(2, 3), "part": weight[0], "lists": [(weight, 1)]}
    copied = beside.HostCopies().of(content)
    weight.zero_()
    assert copied["head"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert copied["head"] is copied["embedding"] is copied["lists"][0][0]
    assert copied["part"].tolist() == [0, 1, 2]


def test_the_weights_of_one_rank_are_copied_once(
    beside: Any, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint has them for the engine and in Hugging Face's format."""
    copied: list[int] = []
    copy = beside.HostCopies._copied

    def counted(self: Any, tensor: Any) -> Any:
        copied.append(tensor.numel())
        return copy(self, tensor)

    monkeypatch.setattr(beside.HostCopies, "_copied", counted)
    plan = trained(tiny_model, tmp_path, "sft", steps=1)
    parameters = sum(weight.numel() for weight in trained_weights(plan, 1).values())
    # weights and both moments, besides the optimiser's counts of steps and the states of generators
    large = [count for count in copied if count >= 1000 and count != torch.get_rng_state().numel()]
    assert 3 * 0.8 * parameters <= sum(large) <= 3 * parameters


@pytest.mark.parametrize("kind", ["dr_grpo", "sft"])
@pytest.mark.usefixtures("beside")
def test_a_training_that_fails_keeps_the_checkpoint_that_is_being_written(
    kind: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind)
    from spanloop.training.verl_plugin.engine.tree_engine import TreeEngine  # noqa: PLC0415 - imports verl

    stock: Any = TreeEngine.forward_backward_batch
    passes: list[int] = []

    def failing(engine: Any, *arguments: Any, **settings: Any) -> Any:
        passes.append(1 - settings["forward_only"])
        if sum(passes) == 2:
            raise RuntimeError("the second step fails")
        return stock(engine, *arguments, **settings)

    monkeypatch.setattr(TreeEngine, "forward_backward_batch", failing)
    with pytest.raises(RuntimeError, match="the second step fails"):
        train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    assert checkpoint.step == 1


@pytest.mark.usefixtures("beside")
def test_a_write_that_fails_fails_the_job_and_leaves_the_checkpoint_before(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tiny_model, tmp_path)
    plan = debug_plan(tiny_model, tmp_path)
    save = torch.save

    def full(content: Any, path: Any, *arguments: Any, **settings: Any) -> None:
        if threading.current_thread().name == "checkpoint" and "global_step_2" in str(path):
            raise OSError(28, "No space left on device")
        save(content, path, *arguments, **settings)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    assert checkpoint.step == 1


@pytest.mark.parametrize("kind", ["ppo", "sft"])
def test_checkpoints_that_nothing_resumes_from_have_the_weights_alone(
    kind: str, tiny_model: Path, tmp_path: Path
) -> None:
    plan = trained(tiny_model, tmp_path, kind, resumable=False)
    assert trained_weights(plan, 2)
    assert not list(plan.checkpoint_dir.rglob("*_world_size_1_rank_0.pt"))


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", [0.0, 0.3, 0.7, 1.1])
def test_kill_9_at_any_moment_leaves_a_complete_checkpoint(delay_s: float, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path)
    plan = debug_plan(tiny_model, tmp_path, steps=20, max_passes=100)
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SLOW_WRITER, str(tmp_path / "plan.json")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_for = partial(latest_checkpoint, plan.checkpoint_dir)
        while wait_for() is None and process.poll() is None:
            time.sleep(0.02)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    again = debug_plan(
        tiny_model,
        tmp_path / "again",
        dataset_path=plan.dataset_path,
        resume_from=checkpoint.path,
        steps=checkpoint.step + 1,
    )
    again.metrics_path.parent.mkdir()
    assert [step.step for step in train_here(again)] == [checkpoint.step + 1]
