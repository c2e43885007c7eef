# pyright: basic
# torch and verl are half annotated
"""Settings that users of verl expect, each by its effect on a training in this process."""

import importlib
import json
import math
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM

from spanloop.foundation.errors import JobError
from spanloop.training.dataset.pairs import Side
from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.models.files.lora_adapter import read_checkpoint_adapter
from spanloop.training.models.target_modules import check_target_modules, linear_layers
from spanloop.training.recipes.choices import DpoLoss
from spanloop.training.run.planning import planned_steps
from spanloop.training.spec.choices import Backbone, Logger
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stages import stages_of
from spanloop.training.verl_plugin.main import TENSORBOARD_NAME
from spanloop.training.verl_plugin.supervised.reference_logprobs import REFERENCE_NAME
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import (
    debug_plan,
    first_gradients,
    train_here,
    train_in_subprocess,
    trained_weights,
    write_dataset,
)
from ..recipe_kinds import is_policy_gradient
from ..verl_plugin.test_compute import MANIFEST
from .test_preference_training import plain_sums, write_pairs

pytestmark = pytest.mark.filterwarnings("ignore")
EACH_TRAINER = pytest.mark.parametrize("kind", ["sft", pytest.param("dr_grpo", marks=pytest.mark.slow)])
"""Both trainers of verl."""


def saved_steps(plan: TrainPlan) -> list[int]:
    return sorted(int(path.parent.name.rpartition("_")[2]) for path in plan.checkpoint_dir.glob("*/COMPLETE"))


@EACH_TRAINER
def test_checkpoints_have_the_interval_and_number_of_the_settings(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind, steps=5, save_every_steps=1, max_ckpt_to_keep=3)
    train_here(plan)
    assert saved_steps(plan) == [3, 4, 5]

    run = plan.run.model_copy(update={"max_ckpt_to_keep": 1})
    one = plan.model_copy(update={"checkpoint_dir": tmp_path / "one", "run": run, "save_every_steps": 2})
    train_here(one)
    assert saved_steps(one) == [5]

    resumed = plan.model_copy(update={"steps": 7, "resume_from": plan.checkpoint_dir / "global_step_5"})
    train_here(resumed)
    assert saved_steps(resumed) == [5, 6, 7]
    assert sorted(path.name for path in plan.checkpoint_dir.glob("global_step_*")) == [
        f"global_step_{step}" for step in (5, 6, 7)
    ]


def test_an_accumulated_step_has_the_mean_gradient_of_its_batches(tiny_model: Path, tmp_path: Path) -> None:
    spec = JobSpec.of(base="tiny", batch_groups=1, gradient_accumulation_steps=2, steps=1)
    assert planned_steps(spec, MANIFEST)[1] == 2 * planned_steps(JobSpec.of(base="tiny", batch_groups=1), MANIFEST)[1]
    rows = write_dataset(tiny_model, tmp_path, groups=2).rows
    # passes of one row
    settings = {"steps": 1, "micro_batch_tokens": 64, "clip_grad": 1e6, "shuffle": False}
    together = debug_plan(tiny_model, tmp_path, batch_size=2, **settings)
    train_here(together)
    alone = []
    for number in range(2):
        folder = tmp_path / f"alone-{number}"
        folder.mkdir()
        rows.filter(pl.col("group_id") == f"g{number}").write_parquet(folder / "dataset.parquet")
        alone.append(debug_plan(tiny_model, folder, batch_size=1, **settings))
        train_here(alone[-1])
    first, second = (first_gradients(plan) for plan in alone)
    for name, gradient in first_gradients(together).items():
        torch.testing.assert_close(gradient, (first[name] + second[name]) / 2, atol=1e-6, rtol=1e-4)


def test_lora_trains_the_layers_of_the_setting(tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind="sft")
    plan = debug_plan(tiny_model, tmp_path, kind="sft", steps=1, lora_rank=4, target_modules=("q_proj", "down_proj"))
    train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    adapter = read_checkpoint_adapter(checkpoint.weights_path)
    assert adapter is not None
    assert {layer.rpartition(".")[2] for layer in adapter} == {"q_proj", "down_proj"}


def test_the_seed_draws_the_low_rank_matrices(tiny_model: Path, tmp_path: Path) -> None:
    """Whatever the process has drawn before."""
    write_dataset(tiny_model, tmp_path, kind="sft")
    drawn = []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)
        plan = debug_plan(tiny_model, tmp_path, kind="sft", steps=1, lora_rank=4, seed=seed, learning_rate=1e-9)
        train_here(plan)
        checkpoint = latest_checkpoint(plan.checkpoint_dir)
        assert checkpoint is not None
        adapter = read_checkpoint_adapter(checkpoint.weights_path)
        assert adapter is not None
        drawn.append(torch.cat([pair[0].flatten() for pair in adapter.values()]))
        shutil.rmtree(plan.checkpoint_dir)
    torch.testing.assert_close(drawn[0], drawn[1], atol=1e-6, rtol=1e-4)
    assert (drawn[0] - drawn[2]).norm() > 0.5 * drawn[0].norm()


def test_a_name_that_no_layer_has_is_refused_before_training(tiny_model: Path) -> None:
    check_target_modules(["q_proj", "gate_proj"], tiny_model)
    assert "lm_head" not in linear_layers(tiny_model)
    with pytest.raises(JobError, match=r"no linear layer of the base .* is named v_porj") as caught:
        check_target_modules(["q_proj", "v_porj"], tiny_model)
    assert "Did you mean v_proj?" in caught.value.next_step


def test_lora_dropout_acts_on_the_inputs_of_the_low_rank_matrices(tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind="sft")
    gradients: dict[float, Any] = {}
    losses: dict[float, float] = {}
    for rate in (0.0, 0.5):
        plan = debug_plan(
            tiny_model,
            tmp_path / str(rate),
            kind="sft",
            steps=1,
            lora_rank=4,
            lora_dropout=rate,
            dataset_path=tmp_path / "dataset.parquet",
        )
        plan.metrics_path.parent.mkdir()
        (step,) = train_here(plan)
        losses[rate] = step.values["train/loss"]
        gradients[rate] = first_gradients(plan)
    # B starts with zeros, so the loss of the first step is that of the base whatever A sees
    assert losses[0.5] == pytest.approx(losses[0.0], abs=1e-5)
    trained = [name for name, gradient in gradients[0.0].items() if gradient.abs().max() > 0]
    assert trained
    for name in trained:
        assert not torch.allclose(gradients[0.5][name], gradients[0.0][name], rtol=0.05, atol=1e-9), name


def pair_loss(loss: DpoLoss, margin: float, beta: float, smoothing: float) -> float:
    """One pair's loss, from the papers."""
    if loss is DpoLoss.HINGE:
        return max(0.0, 1 - margin)
    if loss is DpoLoss.IPO:
        return (margin / beta - 1 / (2 * beta)) ** 2
    return (1 - smoothing) * float(np.logaddexp(0, -margin)) + smoothing * float(np.logaddexp(0, margin))


@pytest.mark.parametrize(
    ("loss", "smoothing"),
    [
        pytest.param(DpoLoss.SIGMOID, 0.0, marks=pytest.mark.slow),
        (DpoLoss.SIGMOID, 0.2),
        pytest.param(DpoLoss.HINGE, 0.0, marks=pytest.mark.slow),
        (DpoLoss.IPO, 0.0),
    ],
)
def test_dpo_trains_with_each_loss_and_without_a_reference(
    loss: DpoLoss, smoothing: float, tiny_model: Path, tmp_path: Path
) -> None:
    rows = write_pairs(tmp_path)
    plan = debug_plan(
        tiny_model,
        tmp_path,
        kind="dpo",
        steps=1,
        batch_size=4,
        dpo_beta=0.1,
        dpo_loss=loss,
        dpo_label_smoothing=smoothing,
        dpo_reference_free=True,
    )
    (step,) = train_here(plan)
    model: Any = AutoModelForCausalLM
    with torch.no_grad():
        sums = [float(each) for each in plain_sums(model.from_pretrained(tiny_model, dtype=torch.float32), rows)]
    margins: dict[int, float] = {}
    for (pair, side), logprob in zip(rows.select("pair_id", "side").iter_rows(), sums, strict=True):
        margins[pair] = margins.get(pair, 0.0) + (1 if side == Side.CHOSEN else -1) * 0.1 * logprob
    expected = np.mean([pair_loss(loss, margin, 0.1, smoothing) for margin in margins.values()])
    assert step.values["train/loss"] == pytest.approx(float(expected), rel=1e-4)
    assert step.values["dpo/margin"] == pytest.approx(float(np.mean(list(margins.values()))), rel=1e-4)
    assert not (tmp_path / REFERENCE_NAME).exists()
    assert "dpo/kl_k2" not in step.values


def mean_loss(model: Path, weights: dict[str, torch.Tensor], rows: pl.DataFrame) -> float:
    """The mean negative log-probability of the trained tokens, by transformers alone."""
    loader: Any = AutoModelForCausalLM
    network = loader.from_pretrained(model, dtype=torch.float32)
    network.load_state_dict(weights, strict=False)
    network.tie_weights()
    with torch.no_grad():
        sums = plain_sums(network, rows)
    tokens = sum(sum(mask) for mask in rows["loss_mask"])
    return -sum(float(each) for each in sums) / tokens


def test_the_loss_of_held_out_rows_is_computed_every_n_steps(tiny_model: Path, tmp_path: Path) -> None:
    rows = write_dataset(tiny_model, tmp_path, kind="sft", groups=3).rows
    held_out = rows.filter(pl.col("group_id") == "g2")
    held_out.write_parquet(tmp_path / "held_out.parquet")
    rows.filter(pl.col("group_id") != "g2").write_parquet(tmp_path / "dataset.parquet")
    samples = tmp_path / "samples-1.jsonl"
    plan = debug_plan(
        tiny_model,
        tmp_path,
        kind="sft",
        steps=5,
        batch_size=3,
        max_ckpt_to_keep=5,
        micro_batch_tokens=64,
        validation_path=tmp_path / "held_out.parquet",
        validate_every_steps=2,
        samples_path=samples,
    )
    metrics = train_here(plan)
    losses = {step.step: step.values["val/loss"] for step in metrics if "val/loss" in step.values}
    assert list(losses) == [2, 4, 5]
    for step, loss in losses.items():
        assert loss == pytest.approx(mean_loss(tiny_model, trained_weights(plan, step), held_out), abs=1e-5)
    assert len({round(loss, 6) for loss in losses.values()}) == 3
    recorded = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [len(line["sample"]) for line in recorded] == [3] * 5


def test_a_stage_with_validation_holds_rows_out_and_has_no_gate_unless_another_follows() -> None:
    (alone,) = stages_of(JobSpec.of(base="tiny", kind="sft", test_freq=2, held_out_share=0.2))
    assert (alone.held_out_share, alone.has_gate) == (0.2, False)
    (without,) = stages_of(JobSpec.of(base="tiny", kind="sft"))
    assert (without.held_out_share, without.has_gate) == (0.0, False)
    first, last = stages_of(JobSpec.of(base="tiny", kind="sft", test_freq=2, then=("kind=dpo",)))
    assert (first.held_out_share, first.has_gate, last.held_out_share, last.has_gate) == (0.1, True, 0.0, False)
    with pytest.raises(ValueError, match="test_freq: without a held_out_share no row is left"):
        JobSpec.of(base="tiny", kind="sft", test_freq=2, held_out_share=0)


@pytest.fixture
def offline_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DATA_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    yield
    # it keeps its settings for the process
    importlib.import_module("wandb").teardown()


@EACH_TRAINER
@pytest.mark.usefixtures("offline_wandb")
def test_tensorboard_and_wandb_get_each_step(kind: str, tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind=kind)
    plan = debug_plan(tiny_model, tmp_path, kind=kind, loggers=(Logger.TENSORBOARD, Logger.WANDB))
    steps = train_here(plan)
    reader: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(tmp_path / TENSORBOARD_NAME))
    events.Reload()
    name = "actor/pg_loss" if is_policy_gradient(kind) else "train/loss"
    logged = [(event.step, event.value) for event in events.Scalars(name)]
    assert [step for step, _ in logged] == [1, 2]
    for (_, value), step in zip(logged, steps, strict=True):
        assert math.isclose(value, step.values[name], rel_tol=1e-5, abs_tol=1e-6)
    (run,) = (tmp_path / "wandb").glob("offline-run-*")
    assert next(run.glob("*.wandb")).stat().st_size > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_ranks_compute_the_validation_loss_of_one(tiny_model: Path, tmp_path: Path) -> None:
    rows = write_dataset(tiny_model, tmp_path, kind="sft", groups=3).rows
    held_out = rows.filter(pl.col("group_id") == "g2")
    held_out.write_parquet(tmp_path / "held_out.parquet")
    plan = debug_plan(
        tiny_model,
        tmp_path,
        kind="sft",
        steps=1,
        backbone=Backbone.RAY,
        gpus_per_node=2,
        validation_path=tmp_path / "held_out.parquet",
    )
    (step,) = train_in_subprocess(plan)
    assert step.values["val/loss"] == pytest.approx(mean_loss(tiny_model, trained_weights(plan, 1), held_out), abs=1e-5)
