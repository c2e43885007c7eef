"""The overrides that every kind of job shares."""

from spanloop.training.spec.choices import Device
from spanloop.training.spec.hydra_values import quoted

from ..train_plan import TrainPlan

_ENDLESS_EPOCHS = 1_000_000
"""verl stops at the number of steps; epochs only limit its loop."""
_ENGINE = "spanloop.training.verl_plugin.engine.tree_engine"


def trainer_overrides(plan: TrainPlan) -> list[str]:
    """Return steps, checkpoints, resume and logging, with the same names for verl's PPO and SFT trainers."""
    resume = (
        ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={quoted(plan.resume_from)}"]
        if plan.resume_from
        else ["trainer.resume_mode=disable"]
    )
    return [
        f"trainer.device={plan.device}",
        f"trainer.nnodes={plan.run.nodes}",
        f"trainer.n_gpus_per_node={plan.run.gpus_per_node}",
        f"trainer.logger=[{','.join(('file', *plan.run.loggers))}]",
        "trainer.project_name=spanloop",
        f"trainer.experiment_name={quoted(plan.job_id)}",
        f"trainer.total_training_steps={plan.steps}",
        f"trainer.total_epochs={_ENDLESS_EPOCHS}",
        f"trainer.save_freq={plan.save_every_steps}",
        f"trainer.test_freq={plan.validate_every_steps if plan.validation_path else -1}",
        f"trainer.default_local_dir={quoted(plan.checkpoint_dir)}",
        *resume,
    ]


def checkpoint_overrides(plan: TrainPlan, *, checkpoint: str, has_model: bool = True) -> list[str]:
    """Return what a checkpoint has: what a job continues from, and the weights in Hugging Face's format.

    Args:
        plan: The plan.
        checkpoint: Path of the settings in verl's configuration.
        has_model: Whether the weights are a result of the job.
    """
    resumed = ["model", "optimizer", "extra"]
    saved = [*(resumed if plan.run.resumable else []), *(["hf_model"] if has_model else [])]
    return [
        f"{checkpoint}.save_contents=[{','.join(saved)}]",
        f"{checkpoint}.load_contents=[{','.join(resumed)}]",
    ]


def kept_checkpoints(plan: TrainPlan) -> int:
    """Return verl's number of kept checkpoints: at least two.

    verl removes an old one before the new one has its mark; :func:`~spanloop.training.models.checkpoints.discard_old`
    removes what is over the plan's number afterwards.
    """
    return max(2, plan.run.max_ckpt_to_keep)


def engine_overrides(plan: TrainPlan, *, model: str, engine: str) -> list[str]:
    """Return model and FSDP2 engine; ``model`` and ``engine`` are their paths in verl's configuration.

    Weights, gradients and optimiser are float32. Forward and backward passes are bfloat16, verl's default, except on a
    CPU without instructions for it.
    """
    overrides = [
        f"{model}.path={quoted(plan.model_path)}",
        # the engine chooses another one, and needs one to load the model
        f"+{model}.override_config.attn_implementation=sdpa",
        f"{model}.external_lib={_ENGINE}",
    ]
    target_modules = f"[{','.join(plan.optimiser.target_modules)}]" if plan.optimiser.target_modules else "all-linear"
    # a critic starts with a new head, which an adapter would leave as it is
    if plan.optimiser.lora_rank and not model.startswith("critic"):
        overrides += [
            f"{model}.lora_rank={plan.optimiser.lora_rank}",
            f"{model}.lora_alpha={plan.optimiser.lora_alpha}",
            f"{model}.target_modules={target_modules}",
            f"{model}.lora.dropout={plan.optimiser.lora_dropout}",
        ]
    overrides.append(f"{model}.enable_gradient_checkpointing={plan.checkpoint_activations}")
    return overrides + forward_overrides(plan, engine=engine)


def forward_overrides(plan: TrainPlan, *, engine: str) -> list[str]:
    """Return how one FSDP2 engine computes; ``engine`` is its path in verl's configuration."""
    overrides = [
        f"{engine}.use_torch_compile=False",
        f"{engine}.offload_policy={plan.run.offload}",
        f"{engine}.seed={plan.optimiser.seed}",
    ]
    if plan.device is Device.CPU:
        overrides += [
            # gather once a step instead of twice for each micro-batch; one rank holds all weights anyway
            f"{engine}.reshard_after_forward=False",
            f"+{engine}.mixed_precision.param_dtype={'bf16' if plan.bfloat16 else 'fp32'}",
        ]
    return overrides
