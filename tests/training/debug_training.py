"""Trains in the test's own process, on verl's engine without Ray (backbone ``debug``): about a second a job.

verl is imported once a process, for the CPU: ``conftest`` names the platform before any test module imports verl.
"""

import os
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - half annotated

from spanloop.training.dataset.selection import Selection
from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.run.monitor.metrics import StepMetrics, logged_steps
from spanloop.training.run.verl_process import ray_folder, verl_process
from spanloop.training.spec.choices import Backbone, Device
from spanloop.training.verl_plugin.main import train
from spanloop.training.verl_plugin.train_plan import TrainPlan

from .selection_rows import row, rules, select
from .training_running import a_plan
from .training_seeding import token_logprobs


def write_dataset(
    model: Path,
    folder: Path,
    *,
    kind: str = "dr_grpo",
    groups: int = 3,
    episodes: int = 4,
    seed: int = 0,
    rewards: Sequence[float] = (0.0, 1.0),
) -> Selection:
    """Write a job's dataset file: groups of rows with a common prompt and rewards that differ, sampled by ``model``."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        prompt = [rng.randrange(3, 300) for _ in range(rng.randrange(20, 40))]
        for number in range(episodes):
            response = [rng.randrange(3, 300) for _ in range(rng.randrange(8, 20))]
            rows.append(
                row(
                    f"g{group}-e{number}",
                    f"g{group}",
                    rewards[number % len(rewards)],
                    prompt_token_ids=prompt,
                    response_token_ids=response,
                    loss_mask=[0 if 2 <= index < 4 else 1 for index in range(len(response))],
                    logprobs=token_logprobs(model, prompt, response),
                    sampled_ends=[len(response)],
                )
            )
    selection = select(rows, rules(kind, vocabulary_size=400))
    folder.mkdir(parents=True, exist_ok=True)
    selection.rows.write_parquet(folder / "dataset.parquet")
    return selection


def debug_plan(model: Path, folder: Path, **changes: Any) -> TrainPlan:
    """A plan of two steps of two groups or rows on the dataset in ``folder``, in float32."""
    defaults: dict[str, Any] = {
        "model_path": model,
        "backbone": Backbone.DEBUG,
        "device": Device.CPU,
        "bfloat16": False,
        "steps": 2,
        "batch_size": 2,
        "save_every_steps": 1,
        "learning_rate": 1e-3,
        "max_prompt_tokens": 40,
        "max_response_tokens": 20,
    }
    return a_plan(folder, **defaults | changes)


def train_here(plan: TrainPlan) -> list[StepMetrics]:
    """Train in this process; return the metrics of every step."""
    threads = torch.get_num_threads()
    try:
        with patch.dict(os.environ), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_num_threads(plan.threads)
            train(plan)
    finally:
        torch.set_num_threads(threads)
    return logged_steps(plan.metrics_path.parent)


def trained_weights(plan: TrainPlan, step: int | None = None) -> dict[str, torch.Tensor]:
    """The weights of the newest complete checkpoint, or of the one at ``step``."""
    checkpoint = latest_checkpoint(plan.checkpoint_dir, at_most=step)
    assert checkpoint is not None
    assert step is None or checkpoint.step == step
    return load_file(checkpoint.weights_path / "model.safetensors")


def first_gradients(plan: TrainPlan) -> dict[tuple[str, int], torch.Tensor]:
    """The gradients of step 1 after clipping, by folder and number of the parameter.

    Adam's first moment is a tenth of them. The parts of several ranks are joined.
    """
    step = plan.checkpoint_dir / "global_step_1"
    parts: dict[str, list[Any]] = {}
    for path in sorted(step.rglob("optim_world_size_*.pt"), key=lambda path: int(path.stem.rpartition("_")[2])):
        folder = str(path.parent.relative_to(step))
        parts.setdefault(folder, []).append(torch.load(path, weights_only=False)["state"])
    return {
        (folder, number): 10 * torch.cat([getattr(moment, "_local_tensor", moment) for moment in moments])
        for folder, states in parts.items()
        for number in states[0]
        for moments in [[state[number]["exp_avg"] for state in states]]
    }


def assert_same_gradients(first: TrainPlan, second: TrainPlan, *, tolerance: float) -> None:
    """Largest difference relative to the largest gradient of the model."""
    expected, got = first_gradients(first), first_gradients(second)
    assert expected.keys() == got.keys()
    for folder in {folder for folder, _ in expected}:
        of_model = {key: gradient for key, gradient in expected.items() if key[0] == folder}
        largest = max(float(gradient.abs().max()) for gradient in of_model.values())
        assert largest > 0
        for key, gradient in of_model.items():
            torch.testing.assert_close(got[key], gradient, rtol=0, atol=largest * tolerance)


def train_in_subprocess(plan: TrainPlan) -> list[StepMetrics]:
    """Train as ``run_job`` does, in a process of its own; return the metrics of every step."""
    plan_path = plan.failure_path.with_name("plan.json")
    with ray_folder(plan_path) as folder:
        copied = plan.model_copy(update={"ray_temp_dir": folder})
        with verl_process(copied, plan_path, token=1) as run:
            status = run.process.wait(timeout=550)
    assert status == 0, plan.failure_path.read_text() if plan.failure_path.exists() else status
    return logged_steps(plan.metrics_path.parent)
