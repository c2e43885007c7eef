"""Raw overrides of verl's configuration, and loggers, are checked before a job is queued."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.recipes.choices import DpoLoss
from spanloop.training.recipes.registry import find_recipe
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.choices import Backbone, Device, LearningRateSchedule, Logger, OptimizerDtype
from spanloop.training.spec.job_file import build_spec, read_job_file
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stages import stages_of
from spanloop.training.spec.verl_overrides import override_texts, refused_overrides
from spanloop.training.verl_plugin import override_check
from spanloop.training.verl_plugin.override_check import check_overrides, check_verl, config_name
from spanloop.training.verl_plugin.overrides.dpo import dpo_overrides
from spanloop.training.verl_plugin.overrides.policy_gradient import policy_gradient_overrides
from spanloop.training.verl_plugin.overrides.sft import sft_overrides
from spanloop.training.verl_plugin.verl_config import compose

from ..recipe_kinds import KINDS, is_policy_gradient
from ..training_running import a_plan

ACTOR = "actor_rollout_ref.actor"
RECIPES = {kind: policy_gradient_overrides for kind in KINDS if is_policy_gradient(kind)} | {
    "sft": sft_overrides,
    "dpo": dpo_overrides,
}


@pytest.mark.parametrize(
    ("kind", "overrides", "key", "value"),
    [
        ("dr_grpo", (f"{ACTOR}.clip_ratio_c=5",), f"{ACTOR}.clip_ratio_c", 5),
        ("ppo", (f"{ACTOR}.entropy_coeff=0.01",), f"{ACTOR}.entropy_coeff", 0.01),
        ("sft", ("optim.betas=[0.9,0.95]",), "optim.betas", [0.9, 0.95]),
        ("dpo", ("trainer.project_name='a, b=c'",), "trainer.project_name", "a, b=c"),
        # the recipe's value is overridden, and a key of a free table added
        ("sft", ("model.override_config.attn_implementation=eager",),
         "model.override_config.attn_implementation", "eager"),
        # a field of a dataclass that the files leave out
        ("sft", ("engine.mixed_precision.param_dtype=fp16",), "engine.mixed_precision.param_dtype", "fp16"),
    ],
)  # fmt: skip
def test_an_override_is_in_the_composed_configuration(
    kind: str, overrides: tuple[str, ...], key: str, value: object
) -> None:
    spec = JobSpec.of(base="tiny", kind=kind, verl=overrides)
    check_verl(spec)
    plan = a_plan(Path("/nowhere"), kind=kind, device=Device.CPU, verl=JobSpec.model_validate_json(
        spec.model_dump_json()).run.verl)  # fmt: skip
    node: Any = compose(config_name(find_recipe(kind).learns_from), RECIPES[kind](plan), plan.run.verl)
    for part in key.split("."):
        node = node[part]
    assert node == value


@pytest.mark.parametrize(
    ("override", "what", "next_step"),
    [
        (f"{ACTOR}.clip_ratio_z=5", "is no key of verl's ppo_trainer configuration", f"{ACTOR}.clip_ratio_c"),
        ("optim.betas=[0.9,0.95]", "is no key of verl's ppo_trainer configuration", f"{ACTOR}.optim.betas"),
        (f"{ACTOR}.clip_ratio_c=high", "is 'high' .str.; verl expects float", "Write numbers"),
        (f"{ACTOR}.use_prefix_grouper=3", "is 3 .int.; verl expects bool", "Write numbers"),
        (f"{ACTOR}.optim.betas=0.9", "is 0.9 .float.; verl expects list", "Write numbers"),
        ("critic.optim.num_cycles=true", "is True .bool.; verl expects float", "Write numbers"),
        ("trainer.project_name=a,b", "no value in Hydra's syntax", "single quotes"),
        ("trainer.project_name=[a", "no value in Hydra's syntax", "single quotes"),
        (f"{ACTOR}.profiler=1", "is a table of verl's configuration", f"{ACTOR}.profiler.tool"),
    ],
)
def test_what_verl_does_not_have_is_refused_with_near_matches(override: str, what: str, next_step: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        check_overrides(LearnsFrom.ROWS, (override,))
    assert next_step in caught.value.next_step
    assert override.partition("=")[0] in caught.value.what


def test_near_matches_can_be_overridden() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_overrides(LearnsFrom.TEXT, ("optim.ls=1",))
    assert "optim.lr " not in caught.value.next_step


def test_checking_imports_neither_verl_nor_torch() -> None:
    code = (
        "import sys; from spanloop.training.verl_plugin.override_check import check_overrides; "
        "from spanloop.training.recipes.base import LearnsFrom; "
        "check_overrides(LearnsFrom.TEXT, ('optim.betas=[0.9,0.95]',)); "
        "print([name for name in ('torch', 'verl', 'ray') if name in sys.modules])"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("data.train_files=/data", "rows of the job's own dataset"),
        ("trainer.v1.trainer_mode=sync", "registers spanloop's trainer"),
        (f"{ACTOR}.optim.lr=1e-3", "the setting learning_rate"),
        (f"{ACTOR}.clip_ratio=0.1", "the setting clip_ratio_low or clip_ratio_high"),
        ("actor_rollout_ref.rollout.n=4", "nothing is sampled"),
        ("trainer.logger=[wandb]", "the setting loggers"),
        ("trainer={save_freq:1}", "override single keys below it"),
        ("+trainer.x=1", "write KEY=VALUE"),
        ("trainer.x", "write KEY=VALUE"),
    ],
)
def test_what_spanloop_decides_is_refused_with_the_reason(override: str, reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        JobSpec.of(base="tiny", verl=(override,))
    with pytest.raises(ValidationError, match="overridden twice"):
        JobSpec.of(base="tiny", verl=(f"{ACTOR}.clip_ratio_c=5", f"{ACTOR}.clip_ratio_c=6"))


OTHER_PLAN: dict[str, Any] = {
    "model_path": Path("/b/model"), "dataset_path": Path("/b/data"), "checkpoint_dir": Path("/b/checkpoints"),
    "resume_from": Path("/b/step"), "steps": 9, "batch_size": 5, "epochs": 2, "lora_rank": 8, "lora_alpha": 9,
    "lora_dropout": 0.1, "target_modules": ("q_proj",), "learning_rate": 1e-3, "lr_warmup_steps": 3,
    "lr_scheduler_type": LearningRateSchedule.COSINE, "weight_decay": 0.1, "clip_grad": 0.5, "seed": 5,
    "critic_learning_rate": 1e-2, "gae_lambda": 0.5, "kl_coefficient": 0.1, "temperature": 0.5, "shuffle": False,
    "max_prompt_tokens": 11, "max_response_tokens": 21, "micro_batch_tokens": 99, "offload": True, "gpus_per_node": 2,
    "nodes": 2,
    "optimizer_dtype": OptimizerDtype.BFLOAT16, "save_every_steps": 3, "max_ckpt_to_keep": 4, "bfloat16": True,
    "validation_path": Path("/b/held_out"), "validate_every_steps": 3, "loggers": (Logger.WANDB,),
    "cliprange_value": 0.1, "clip_ratio_low": 0.1, "clip_ratio_high": 0.1, "dpo_loss": DpoLoss.IPO,
    "backbone": Backbone.DEBUG,
}  # fmt: skip
"""Another value for each setting of a plan that reaches verl's configuration."""
FREE = {"trainer.experiment_name", "mixed_precision.param_dtype", "enable_gradient_checkpointing", "use_kl_loss"}


@pytest.mark.parametrize("kind", list(RECIPES))
def test_no_key_has_two_sources(kind: str) -> None:
    """Whatever a recipe computes from the plan cannot be overridden; only its constants can."""

    def parsed(**changes: Any) -> dict[str, Any]:
        overrides = RECIPES[kind](a_plan(Path("/a"), **{"kind": kind, "device": Device.CPU, **changes}))
        parser = OverridesParser.create()
        return {each.get_key_element().lstrip("+"): each.value() for each in parser.parse_overrides(overrides)}

    plain, other = parsed(), parsed(**OTHER_PLAN, job_id="job-2")
    changed = {key for key in plain | other if plain.get(key) != other.get(key)}
    assert len(changed) > 20
    free = {key for key in changed if not any(refused_overrides((f"{key}=1",)))}
    # names and precision are free, and what a reference policy computes in
    assert {key for key in free if not key.startswith("actor_rollout_ref.ref.")} <= {
        key for key in changed if any(key.endswith(name) for name in FREE)
    } | {f"{ACTOR}.kl_loss_type"}


def test_a_job_with_a_wrong_override_or_without_the_package_is_not_queued(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = JobApi(data_dir)
    with pytest.raises(ConfigurationError, match="is no key of verl's sft_trainer_engine"):
        api.submit(JobSpec.of(base="tiny", kind="sft", verl=("optim.beta=1",)))
    with pytest.raises(ConfigurationError, match="is no key of verl's sft_trainer_engine"):
        api.schedule(JobSpec.of(base="tiny", then=("kind=sft 'verl=optim.beta=1'",)), cron="0 3 * * *")
    packages: dict[str, object] = {"verl": object(), "tensorboard": object()}
    monkeypatch.setattr(override_check, "find_spec", packages.get)
    with pytest.raises(ConfigurationError, match="loggers: wandb needs the package wandb") as caught:
        api.submit(JobSpec.of(base="tiny", loggers=(Logger.TENSORBOARD, Logger.WANDB)))
    assert "pip install wandb" in caught.value.next_step
    # a host that does not train leaves it to the one that does
    packages.clear()
    check_verl(JobSpec.of(base="tiny", loggers=(Logger.WANDB,), verl=("no.such.key=1",)))
    assert api.list() == ()
    assert api.schedules() == ()


def test_a_job_file_has_a_table_and_a_stage_its_own(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'base = "m"\n[verl]\n"trainer.project_name" = "my, own"\n[verl.actor_rollout_ref.actor]\nclip_ratio_c = 5.0\n'
        'use_prefix_grouper = true\noptim.betas = [0.9, 0.95]\n[[then]]\nkind = "sft"\nverl.optim.betas = [0.8, 0.9]\n'
    )
    spec = build_spec(read_job_file(file), where=str(file))
    assert spec.run.verl == (
        "trainer.project_name='my, own'",
        f"{ACTOR}.clip_ratio_c=5.0",
        f"{ACTOR}.use_prefix_grouper=true",
        f"{ACTOR}.optim.betas=[0.9,0.95]",
    )
    assert [stage.spec.run.verl for stage in stages_of(spec)] == [spec.run.verl, ("optim.betas=[0.8,0.9]",)]
    check_verl(spec)
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
    assert override_texts({"a": {"b": "it's"}}) == (r"a.b='it\'s'",)
