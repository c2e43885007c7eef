"""LoRA trains a part of the weights, and its result is a normal model."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from peft import PeftModel
from pydantic import ValidationError
from safetensors.torch import load_file, save_file  # pyright: ignore[reportUnknownVariableType] - half annotated
from transformers import AutoModelForCausalLM

from spanloop.foundation.errors import JobError
from spanloop.training.models.checkpoints import KeptAdapter, assemble_model, latest_checkpoint
from spanloop.training.models.files.lora_adapter import LowRank, adapter_rank, read_adapter, stack, write_adapter
from spanloop.training.models.files.lora_merge import merge_checkpoint, merge_into_base
from spanloop.training.models.memory_estimate import MemoryFactors, estimate_on_cpu
from spanloop.training.models.model_shape import ModelShape
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..debug_training import debug_plan, train_here, write_dataset
from ..recipe_kinds import KINDS

GAP = "rollout_corr/logprob_abs_diff_mean"
TOLERANCE_NATS = {False: 1e-4, True: 0.05}
"""By whether the trainer computes in bfloat16; what is compared with is a float32 forward pass of transformers."""


def assembled(plan: TrainPlan, target: Path) -> Path:
    """The folder that the registry gets."""
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    return assemble_model(checkpoint, plan.model_path, target)


@pytest.mark.slow
@pytest.mark.parametrize("bfloat16", [True, False])
def test_the_merged_model_gives_the_trainers_log_probabilities(
    tiny_model: Path, tmp_path: Path, *, bfloat16: bool
) -> None:
    write_dataset(tiny_model, tmp_path)
    settings = {"lora_rank": 4, "learning_rate": 1e-2, "batch_size": 3, "bfloat16": bfloat16, "kl_coefficient": 0.01}
    plan = debug_plan(tiny_model, tmp_path, steps=1, **settings)
    train_here(plan)
    merged = assembled(plan, tmp_path / "merged")

    # the same rows with the merged model's log-probabilities
    write_dataset(merged, tmp_path / "again")
    resumed = plan.checkpoint_dir / "global_step_1"
    again = debug_plan(tiny_model, tmp_path / "again", steps=2, resume_from=resumed, **settings)
    (step,) = train_here(again)
    assert step.step == 2
    assert step.values[GAP] < TOLERANCE_NATS[bfloat16]
    base, trained = (
        pl.read_parquet(each.dataset_path)["logprobs"].explode(empty_as_null=True) for each in (plan, again)
    )
    assert (base - trained).abs().mean() > 0.05  # type: ignore[operator]
    # the KL loss compares with the base, which is the model without its adapter
    assert step.values["actor/kl_loss"] > 0


@pytest.mark.slow
def test_a_kept_adapter_is_what_the_merged_model_adds_to_its_base(tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind="sft")
    plan = debug_plan(tiny_model, tmp_path, kind="sft", lora_rank=4, learning_rate=1e-2)
    train_here(plan)
    checkpoint = latest_checkpoint(plan.checkpoint_dir)
    assert checkpoint is not None
    kept = assemble_model(checkpoint, tiny_model, tmp_path / "kept", kept_adapter=KeptAdapter("tiny@v1"))
    files = {path.name for path in tiny_model.iterdir()} - {"model.safetensors"}
    assert {path.name for path in kept.iterdir()} == files | {"adapter_config.json", "adapter_model.safetensors"}

    # PEFT reads it, and gives what the merged model gives
    loader: Any = AutoModelForCausalLM
    peft: Any = PeftModel
    peft = peft.from_pretrained(loader.from_pretrained(tiny_model), str(kept))
    merged = loader.from_pretrained(assembled(plan, tmp_path / "merged"))
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        expected = merged(ids).logits
        torch.testing.assert_close(peft(ids).logits, expected, rtol=0, atol=1e-5)
        with peft.disable_adapter():
            assert (peft(ids).logits - expected).abs().max() > 0.01

    # a job that starts from it trains on these weights, and keeps both updates
    target = tmp_path / "again"
    target.mkdir()
    merge_into_base(read_adapter(kept), tiny_model, target)
    again, once = load_file(target / "model.safetensors"), load_file(tmp_path / "merged" / "model.safetensors")
    for name, weights in once.items():
        torch.testing.assert_close(again[name], weights, rtol=0, atol=1e-6)
    twice = assemble_model(checkpoint, target, tmp_path / "twice", kept_adapter=KeptAdapter("tiny@v1", merged=kept))
    assert (adapter_rank(kept), adapter_rank(twice)) == (4, 8)
    for layer, update in read_adapter(twice).items():
        once_update = read_adapter(kept)[layer]
        torch.testing.assert_close(update.b @ update.a, 2 * once_update.b @ once_update.a, rtol=0, atol=1e-6)


def test_adapters_of_different_layers_are_one_with_the_updates_of_both() -> None:
    first = {
        "a.q_proj": LowRank(torch.rand(2, 5), torch.rand(6, 2)),
        "a.k_proj": LowRank(torch.rand(2, 5), torch.rand(3, 2)),
    }
    second = {
        "a.q_proj": LowRank(torch.rand(1, 5), torch.rand(6, 1)),
        "a.v_proj": LowRank(torch.rand(1, 5), torch.rand(3, 1)),
    }
    both = stack(first, second)
    assert {layer: update.a.shape[0] for layer, update in both.items()} == dict.fromkeys(
        first.keys() | second.keys(), 3
    )
    for layer, update in both.items():
        parts = [adapter[layer] for adapter in (first, second) if layer in adapter]
        torch.testing.assert_close(update.b @ update.a, torch.stack([part.b @ part.a for part in parts]).sum(0))


def test_adapters_that_cannot_be_read_or_merged_are_refused(tmp_path: Path) -> None:
    update = LowRank(torch.zeros(1, 5), torch.zeros(6, 1))
    save_file({"b.q_proj.weight": torch.zeros(6, 5)}, tmp_path / "model.safetensors")
    with pytest.raises(JobError, match=r"lacks 1 layers of the adapter, the first is a\.q_proj\.weight"):
        merge_into_base({"a.q_proj": update}, tmp_path, tmp_path)
    write_adapter({"a.q_proj": update}, "m@v1", tmp_path)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(JobError, match="expected pairs"):
        read_adapter(tmp_path)
    with pytest.raises(JobError, match="is no adapter"):
        adapter_rank(tmp_path / "missing")


@pytest.mark.slow
def test_only_linear_layers_change(tiny_model: Path, tmp_path: Path) -> None:
    write_dataset(tiny_model, tmp_path, kind="sft")
    plan = debug_plan(tiny_model, tmp_path, kind="sft", lora_rank=4, learning_rate=1e-2)
    train_here(plan)
    before, after = (
        load_file(folder / "model.safetensors") for folder in (tiny_model, assembled(plan, tmp_path / "merged"))
    )
    assert before.keys() == after.keys()
    changed = {name for name in before if not after[name].equal(before[name])}
    assert changed == {name for name in before if "_proj" in name}


def test_shards_keep_their_places_and_a_tied_head_is_left_out(tmp_path: Path) -> None:
    frozen, low, high, norm = torch.randn(6, 5), torch.randn(2, 5), torch.randn(6, 2), torch.randn(5)
    prefix = "base_model.model.model.layers.0"
    first = {
        f"{prefix}.q_proj.base_layer.weight": frozen.bfloat16(),
        f"{prefix}.q_proj.base_layer.bias": norm,
        "base_model.model.lm_head.weight": frozen,
    }
    second = {f"{prefix}.q_proj.lora_A.default.weight": low, f"{prefix}.norm.weight": norm}
    third = {f"{prefix}.q_proj.lora_B.default.weight": high}
    for number, tensors in enumerate((first, second, third)):
        save_file(tensors, tmp_path / f"model-{number}.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {}}))
    target = tmp_path / "target"
    target.mkdir()
    names = ["model.layers.0.q_proj.weight", "model.layers.0.q_proj.bias", "model.layers.0.norm.weight"]
    adapter = {"model.layers.0.q_proj": LowRank(low, 3 * high)}
    merge_checkpoint(adapter, tmp_path, target, names)
    merged = load_file(target / "model-0.safetensors")
    assert merged.keys() == set(names[:2])
    assert merged[names[0]].equal(frozen.bfloat16().float() + (3 * high) @ low)
    assert load_file(target / "model-1.safetensors")[names[2]].equal(norm)
    assert not (target / "model-2.safetensors").exists()
    places = json.loads((target / "model.safetensors.index.json").read_text())["weight_map"]
    assert places == dict.fromkeys(names[:2], "model-0.safetensors") | {names[2]: "model-1.safetensors"}
    with pytest.raises(JobError, match=r"lacks 1 tensors of the base model, the first is model\.other"):
        merge_checkpoint(adapter, tmp_path, target, [*names, "model.other"])


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_learning_rate_is_ten_times_that_of_full_weights(kind: str) -> None:
    full, low_rank = JobSpec.of(kind=kind, base="m"), JobSpec.of(kind=kind, base="m", lora_rank=8)
    assert low_rank.optimiser.learning_rate == pytest.approx(10 * full.optimiser.learning_rate)
    assert JobSpec.of(kind=kind, base="m", lora_rank=8, learning_rate=1e-4).optimiser.learning_rate == 1e-4


def test_a_scale_without_a_rank_is_refused() -> None:
    with pytest.raises(ValidationError, match="needs a lora_rank above 0"):
        JobSpec.of(base="m", lora_alpha=16)
    for rank in (0, 1024):
        with pytest.raises(ValidationError, match="an adapter needs a lora_rank from 1 to 512"):
            JobSpec.of(base="m", lora_merge=False, lora_rank=rank)


def test_an_adapter_needs_less_memory() -> None:
    shape = ModelShape(parameters=1000, layers=2, hidden=8, key_value=4, intermediate=16, vocabulary=32)
    factors = MemoryFactors(lora_rank=1, has_reference=True)
    estimate = estimate_on_cpu(shape, factors, micro_batch_tokens=10, bfloat16=False)
    adapter = 2 * (9 * 8 + 2 * 4 + 3 * 16)
    assert estimate[:3] == (4000, 4 * adapter, 8 * adapter)
    assert estimate.reference == 0
