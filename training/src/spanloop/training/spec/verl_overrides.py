"""Raw overrides of verl's configuration in a job: their texts, and the keys that they may not have.

Invariant: each value of verl's configuration has one source. A key that a recipe sets from the job's settings or its
plan is refused here, with the setting to use; what is left overrides verl's defaults and the recipe's.
:mod:`~spanloop.training.verl_plugin.override_check` compares the rest with verl's configuration.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from .hydra_values import hydra_text

_KEY: Final = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_ACTOR: Final = "actor_rollout_ref.actor"
_MODELS: Final = ("model", "actor_rollout_ref.model", "critic.model")
_ENGINES: Final = ("engine", f"{_ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp")
_OPTIMISERS: Final = ("optim", f"{_ACTOR}.optim", "critic.optim")


def _setting(*names: str) -> str:
    return f"the setting {' or '.join(names)} decides it"


_ROWS: Final = "spanloop trains on the rows of the job's own dataset; the settings of episodes choose them"
_STORED: Final = "the rows are stored with their rewards, so nothing is sampled or scored"
_RESUME: Final = "a killed job continues from the job's own folder"
_BATCHES: Final = "a batch is one optimiser step, divided by micro_batch_tokens"
_WEIGHTS: Final = "the importance weights against the sampler are the recipe's"
_LOADED: Final = "spanloop's engine and checkpoints depend on it"

_OF_MODEL: Final = {
    "path": _setting("base"),
    "external_lib": _LOADED,
    "lora_rank": _setting("lora_rank"),
    "lora_alpha": _setting("lora_alpha"),
    "lora_adapter_path": _setting("base"),
    "target_modules": _setting("target_modules"),
    "lora": f"{_setting('lora_rank', 'lora_dropout')}, and verl's FSDP engine reads nothing else of it",
}
_OF_ENGINE: Final = {"strategy": _LOADED, "offload_policy": _setting("offload"), "seed": _setting("seed")}
_OF_OPTIMISER: Final = {
    "lr": _setting("learning_rate", "critic_learning_rate"),
    "lr_scheduler_type": _setting("lr_scheduler_type"),
    "lr_warmup_steps": _setting("lr_warmup_steps"),
    "lr_warmup_steps_ratio": _setting("lr_warmup_steps"),
    "weight_decay": _setting("weight_decay"),
    "clip_grad": _setting("clip_grad"),
    "optimizer_impl": _setting("optimizer_dtype"),
    "total_training_steps": _setting("steps"),
}
_OF_UPDATE: Final = {
    "strategy": _LOADED,
    "ppo_mini_batch_size": _BATCHES,
    "ppo_micro_batch_size": _BATCHES,
    "ppo_micro_batch_size_per_gpu": _BATCHES,
    "use_dynamic_bsz": _BATCHES,
    "ppo_max_token_len_per_gpu": _setting("micro_batch_tokens"),
    "ppo_infer_max_token_len_per_gpu": _setting("micro_batch_tokens"),
    "ppo_epochs": _setting("epochs"),
    "data_loader_seed": _setting("seed"),
    "grad_clip": _setting("clip_grad"),
    "shuffle": _BATCHES,
    "checkpoint": _LOADED,
}
_RELATIVE: Final = (
    *((root, _OF_MODEL) for root in _MODELS),
    *((root, _OF_ENGINE) for root in _ENGINES),
    *((root, _OF_OPTIMISER) for root in _OPTIMISERS),
    (_ACTOR, _OF_UPDATE),
    ("critic", _OF_UPDATE),
)
_OF_PARTS: Final = {f"{root}.{key}": reason for root, keys in _RELATIVE for key, reason in keys.items()}
OWNED: Final[Mapping[str, str]] = _OF_PARTS | {
    "data": _ROWS,
    "reward": _STORED,
    "reward_model": _STORED,
    "custom_reward_function": _STORED,
    "actor_rollout_ref.rollout": _STORED,
    "transfer_queue": "spanloop starts TransferQueue for each job",
    "ray_kwargs": "spanloop starts Ray, or connects to ray_address",
    "checkpoint": _LOADED,
    f"{_ACTOR}.clip_ratio": _setting("clip_ratio_low", "clip_ratio_high"),
    f"{_ACTOR}.clip_ratio_low": _setting("clip_ratio_low"),
    f"{_ACTOR}.clip_ratio_high": _setting("clip_ratio_high"),
    f"{_ACTOR}.loss_agg_mode": _setting("loss_aggregation"),
    f"{_ACTOR}.loss_scale_factor": _setting("loss_aggregation"),
    f"{_ACTOR}.calculate_entropy": "the metric of the policy's entropy depends on it",
    f"{_ACTOR}.use_kl_loss": _setting("kl_coefficient"),
    f"{_ACTOR}.kl_loss_coef": _setting("kl_coefficient"),
    f"{_ACTOR}.policy_loss._target_": _setting("kind"),
    f"{_ACTOR}.policy_loss.loss_mode": _setting("kind"),
    f"{_ACTOR}.policy_loss.recipe": _setting("kind"),
    f"{_ACTOR}.policy_loss.single_pass": _setting("epochs"),
    "critic.enable": _setting("kind"),
    "critic.cliprange_value": _setting("cliprange_value"),
    "algorithm.adv_estimator": _setting("kind"),
    "algorithm.gamma": "rewards are not discounted between tokens",
    "algorithm.lam": _setting("gae_lambda"),
    "algorithm.use_kl_in_reward": _STORED,
    "algorithm.kl_ctrl": _STORED,
    "algorithm.rollout_correction": _WEIGHTS,
    "trainer.v1": "it registers spanloop's trainer",
    "trainer.use_v1": "it registers spanloop's trainer",
    "trainer.device": _setting("device"),
    "trainer.nnodes": _setting("nodes"),
    "trainer.n_gpus_per_node": _setting("gpus_per_node"),
    "trainer.seed": _setting("seed"),
    "trainer.logger": _setting("loggers"),
    "trainer.total_training_steps": _setting("steps"),
    "trainer.total_epochs": _setting("steps", "max_passes"),
    "trainer.save_freq": _setting("save_freq"),
    "trainer.test_freq": _setting("test_freq"),
    "trainer.val_before_train": _STORED,
    "trainer.val_only": _STORED,
    "trainer.max_ckpt_to_keep": _setting("max_ckpt_to_keep"),
    "trainer.max_actor_ckpt_to_keep": _setting("max_ckpt_to_keep"),
    "trainer.max_critic_ckpt_to_keep": _setting("max_ckpt_to_keep"),
    "trainer.default_local_dir": _RESUME,
    "trainer.default_hdfs_dir": _RESUME,
    "trainer.resume_mode": _RESUME,
    "trainer.resume_from_path": _RESUME,
    "trainer.del_local_ckpt_after_load": _RESUME,
}
"""Why spanloop decides a key of verl's configuration, and everything below it."""


def override_texts(table: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """Return the ``KEY=VALUE`` texts of a table of a job file; keys of tables in it are joined with dots."""
    texts: list[str] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            texts += override_texts(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            texts.append(f"{prefix}{name}={hydra_text(value)}")
    return tuple(texts)


def stage_values(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a stage's table with the texts of its table ``verl``."""
    verl = stage.get("verl")
    table = cast("Mapping[str, Any]", verl) if isinstance(verl, Mapping) else None
    return dict(stage) | ({"verl": override_texts(table)} if table is not None else {})


def refused_overrides(overrides: tuple[str, ...]) -> Iterator[str]:
    """Return what is wrong with ``overrides``, whatever verl's configuration is."""
    seen: set[str] = set()
    for text in overrides:
        key, equals, _ = text.partition("=")
        if not equals or not _KEY.fullmatch(key):
            yield f"verl: {text!r} is no override; write KEY=VALUE, as in {_ACTOR}.clip_ratio_c=5, without + or ~"
        elif key in seen:
            yield f"verl: {key} is overridden twice"
        else:
            yield from _owned(key)
        seen.add(key)


def _owned(key: str) -> Iterator[str]:
    parts = key.split(".")
    prefixes = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    owner = next((prefix for prefix in prefixes if prefix in OWNED), None)
    if owner is not None:
        yield f"verl: {key} cannot be overridden: {OWNED[owner]}"
    elif any(each.startswith(f"{key}.") for each in OWNED):
        yield f"verl: {key} is a table with keys that spanloop decides; override single keys below it"
