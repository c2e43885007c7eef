import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import agg_loss

from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.training.recipes.choices import LossAggregation
from spanloop.training.recipes.registry import parse_recipe
from spanloop.training.run.planning import batch_size, save_interval
from spanloop.training.spec.choices import Device, LearningRateSchedule
from spanloop.training.spec.hydra_values import quoted
from spanloop.training.verl_plugin.overrides.dpo import dpo_overrides
from spanloop.training.verl_plugin.overrides.policy_gradient import RECIPE_LOSS, policy_gradient_overrides
from spanloop.training.verl_plugin.overrides.sft import sft_overrides
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..recipe_kinds import KINDS, POLICY_GRADIENTS, is_policy_gradient
from ..training_running import a_plan

RECIPES = {"sft": sft_overrides, "dpo": dpo_overrides} | dict.fromkeys(POLICY_GRADIENTS, policy_gradient_overrides)


def plan(kind: str, **changes: Any) -> TrainPlan:
    return a_plan(Path("/data dir, with=signs/it's [here]"), kind=kind, **{"device": Device.CPU, **changes})


def parsed(overrides: list[str]) -> dict[str, Any]:
    return {
        each.get_key_element().lstrip("+"): each.value() for each in OverridesParser.create().parse_overrides(overrides)
    }


@pytest.mark.parametrize("kind", list(RECIPES))
def test_what_the_plan_says_reaches_verl(kind: str) -> None:
    config = parsed(RECIPES[kind](plan(kind)))
    assert config["trainer.total_training_steps"] == 7
    assert config["trainer.save_freq"] == 2
    assert config["trainer.device"] == "cpu"
    assert config["trainer.resume_mode"] == "disable"
    assert config["data.train_batch_size"] == 3
    assert config["data.train_files"] == "/data dir, with=signs/it's [here]/dataset.parquet"
    assert 2.5e-6 in {config.get("optim.lr"), config.get("actor_rollout_ref.actor.optim.lr")}


def test_a_policy_gradient_recomputes_at_the_temperature_of_the_rows() -> None:
    config = parsed(policy_gradient_overrides(plan("dr_grpo", temperature=0.7)))
    assert config["actor_rollout_ref.rollout.temperature"] == 0.7


def test_a_kl_loss_needs_a_coefficient() -> None:
    actor = "actor_rollout_ref.actor"
    without = parsed(policy_gradient_overrides(plan("dr_grpo")))
    assert without[f"{actor}.use_kl_loss"] is False
    assert not [key for key in without if key.startswith("actor_rollout_ref.ref")]
    config = parsed(policy_gradient_overrides(plan("dr_grpo", kl_coefficient=0.04)))
    assert (config[f"{actor}.use_kl_loss"], config[f"{actor}.kl_loss_coef"]) == (True, 0.04)
    assert config["actor_rollout_ref.ref.fsdp_config.use_torch_compile"] is False


@pytest.mark.parametrize("kind", list(RECIPES))
def test_each_trained_model_is_offloaded(kind: str) -> None:
    engines = ["actor_rollout_ref.actor.fsdp_config" if is_policy_gradient(kind) else "engine"]
    engines += ["critic.fsdp"] if kind == "ppo" else []
    for offload in (False, True):
        overrides = RECIPES[kind](plan(kind, offload=offload))
        config = parsed(overrides)
        assert [config[f"{engine}.offload_policy"] for engine in engines] == [offload] * len(engines)


@pytest.mark.parametrize("aggregation", list(LossAggregation))
def test_a_loss_is_aggregated_as_the_setting_says(aggregation: LossAggregation) -> None:
    config = parsed(policy_gradient_overrides(plan("dr_grpo", loss_aggregation=aggregation)))
    assert config["actor_rollout_ref.actor.loss_agg_mode"] == aggregation.value
    assert config["actor_rollout_ref.actor.loss_scale_factor"] == 20


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (LossAggregation.TOKEN_MEAN, (1 * 2 + 3 * 6) / 8),
        (LossAggregation.SEQ_MEAN_TOKEN_SUM, (1 * 2 + 3 * 6) / 2),
        (LossAggregation.SEQ_MEAN_TOKEN_MEAN, (1 + 3) / 2),
        (LossAggregation.SEQ_MEAN_TOKEN_SUM_NORM, (1 * 2 + 3 * 6) / 2 / 20),
    ],
)
def test_verl_has_each_aggregation_and_micro_batches_do_not_change_it(
    aggregation: LossAggregation, expected: float
) -> None:
    """A row of two tokens with loss 1 and one of six with loss 3, in one micro-batch or in two."""
    rows = [(torch.full((1, 6), 1.0), torch.tensor([[1, 1, 0, 0, 0, 0]])), (torch.full((1, 6), 3.0), torch.ones(1, 6))]
    together = torch.cat([loss for loss, _ in rows]), torch.cat([mask for _, mask in rows])

    def aggregate(loss: torch.Tensor, mask: torch.Tensor) -> float:
        sizes = {"batch_num_tokens": 8, "global_batch_size": 2, "loss_scale_factor": 20}
        aggregated = cast("Any", agg_loss)(loss_mat=loss, loss_mask=mask, loss_agg_mode=str(aggregation), **sizes)
        return float(aggregated)

    assert aggregate(*together) == pytest.approx(expected)
    assert sum(aggregate(*row) for row in rows) == pytest.approx(expected)


@pytest.mark.parametrize("kind", list(RECIPES))
def test_an_earlier_checkpoint_is_resumed_from(kind: str) -> None:
    config = parsed(RECIPES[kind](plan(kind, resume_from=Path("/c/global_step_4"))))
    assert config["trainer.resume_mode"] == "resume_path"
    assert config["trainer.resume_from_path"] == "/c/global_step_4"


@pytest.mark.parametrize("kind", list(RECIPES))
def test_cuda_keeps_verl_s_own_precision(kind: str) -> None:
    config = parsed(RECIPES[kind](plan(kind, device=Device.CUDA)))
    assert config["trainer.device"] == "cuda"
    assert not [key for key in config if "mixed_precision" in key]


@pytest.mark.parametrize("kind", list(RECIPES))
@pytest.mark.parametrize("device", [Device.CPU, Device.CUDA])
def test_each_device_has_the_tree_engine(kind: str, device: Device) -> None:
    config = parsed(RECIPES[kind](plan(kind, device=device)))
    engines = [value for key, value in config.items() if key.endswith("model.external_lib")]
    assert set(engines) == {"spanloop.training.verl_plugin.engine.tree_engine"}


@pytest.mark.parametrize("kind", list(RECIPES))
def test_a_cpu_computes_in_what_the_plan_says(kind: str) -> None:
    for bfloat16, expected in ((True, "bf16"), (False, "fp32")):
        config = parsed(RECIPES[kind](plan(kind, bfloat16=bfloat16)))
        engines = [value for key, value in config.items() if key.endswith("mixed_precision.param_dtype")]
        assert engines == [expected] * (2 if kind == "ppo" else 1)


@pytest.mark.parametrize("kind", list(RECIPES))
def test_optimiser_settings_reach_every_optimiser(kind: str) -> None:
    changes = {"lr_scheduler_type": LearningRateSchedule.COSINE, "lr_warmup_steps": 2, "weight_decay": 0.1}
    config = parsed(RECIPES[kind](plan(kind, clip_grad=0.5, critic_learning_rate=3e-4, **changes)))
    names = ("lr", "lr_scheduler_type", "lr_warmup_steps", "weight_decay", "clip_grad")
    optimisers = {
        path: tuple(config[f"{path}.{name}"] for name in names)
        for path in ("optim", "actor_rollout_ref.actor.optim", "critic.optim")
        if f"{path}.lr" in config
    }
    policy = "actor_rollout_ref.actor.optim" if is_policy_gradient(kind) else "optim"
    expected = {policy: (2.5e-6, "cosine", 2, 0.1, 0.5)}
    if kind == "ppo":
        expected["critic.optim"] = (3e-4, "cosine", 2, 0.1, 0.5)
    assert optimisers == expected


def test_log_probabilities_are_recomputed_only_for_several_passes() -> None:
    bypass, policy_loss = "algorithm.rollout_correction.bypass_mode", "actor_rollout_ref.actor.policy_loss"
    loss = f"{policy_loss}.loss_mode"
    once = parsed(policy_gradient_overrides(plan("dr_grpo")))
    assert (once[bypass], once[loss]) == (True, RECIPE_LOSS)
    recipe = parse_recipe(json.loads(parsed(policy_gradient_overrides(plan("gspo")))[f"{policy_loss}.recipe"]))
    assert (recipe.kind, recipe.batch_unit) == ("gspo", "groups")
    assert parsed(policy_gradient_overrides(plan("dr_grpo", device=Device.CUDA)))[bypass] is True
    for device in (Device.CPU, Device.CUDA):
        config = parsed(policy_gradient_overrides(plan("dr_grpo", epochs=2, device=device)))
        assert config[bypass] is False
        assert config[loss] == "vanilla"
        assert parsed(policy_gradient_overrides(plan("gspo", epochs=2, device=device)))[loss] == "gspo"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flags\t\t: fpu sse avx512f avx512_bf16 amx_tile", True),
        ("flags\t\t: fpu sse avx512f", False),
        ("Features\t: fp asimd bf16 sve", True),
        ("bogomips\t: bf16", False),
    ],
)
def test_bfloat16_is_used_where_the_cpu_has_it(tmp_path: Path, line: str, expected: bool) -> None:  # noqa: FBT001
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\n{line}\n")
    assert computes_bfloat16(path) is expected
    assert computes_bfloat16(tmp_path / "missing") is False


@given(st.text("ab/ ,='\"\\[]{}()é#%&;:~!-", min_size=1))
def test_any_path_survives_hydra_s_syntax(text: str) -> None:
    assert OverridesParser.create().parse_override(f"key={quoted(text)}").value() == text


def test_a_batch_is_never_larger_than_the_data() -> None:
    assert [batch_size(5, 8), batch_size(8, 5), batch_size(1, 1)] == [5, 5, 1]
    with pytest.raises(ValueError, match="a batch of 8 out of 0"):
        batch_size(0, 8)


def test_rows_are_dealt_to_the_ranks_evenly() -> None:
    assert [batch_size(9, 8, 2), batch_size(5, 8, 2), batch_size(2, 4, 2)] == [8, 4, 2]
    with pytest.raises(ValueError, match="at least 2 of each"):
        batch_size(1, 8, 2)


@pytest.mark.parametrize("kind", list(KINDS))
def test_ranks_reach_verl(kind: str) -> None:
    got = parsed(RECIPES[kind](plan(kind, gpus_per_node=2, nodes=3)))
    assert (got["trainer.n_gpus_per_node"], got["trainer.nnodes"]) == (2, 3)


def test_a_kill_costs_at_most_a_fifth() -> None:
    assert [save_interval(steps) for steps in (1, 5, 6, 60)] == [1, 1, 2, 12]
