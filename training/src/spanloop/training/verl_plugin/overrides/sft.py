"""SFT on stored rows: next-token loss on the tokens that the policy sampled."""

from spanloop.training.spec.hydra_values import quoted

from ..train_plan import TrainPlan
from .common import checkpoint_overrides, engine_overrides, kept_checkpoints, trainer_overrides
from .optimiser import optimiser_overrides


def sft_overrides(plan: TrainPlan, *, dataset: str = "sft_dataset.SftDataset") -> list[str]:
    """Return the overrides of verl's ``sft_trainer_engine`` configuration.

    Args:
        plan: The plan.
        dataset: Module of ``verl_plugin.supervised`` and class that load the dataset file.
    """
    module, _, class_name = dataset.partition(".")
    return [
        *trainer_overrides(plan),
        *engine_overrides(plan, model="model", engine="engine"),
        f"trainer.seed={plan.optimiser.seed}",
        f"+data.shuffle={plan.shuffle}",
        f"trainer.max_ckpt_to_keep={kept_checkpoints(plan)}",
        f"data.train_files={quoted(plan.dataset_path)}",
        f"data.val_files={quoted(plan.validation_path) if plan.validation_path else 'null'}",
        f"data.train_batch_size={plan.batch_size}",
        "data.use_dynamic_bsz=True",
        f"data.max_token_len_per_gpu={plan.micro_batch_tokens}",
        f"data.max_length={plan.max_prompt_tokens + plan.max_response_tokens}",
        "data.num_workers=0",
        f"data.custom_cls.path=pkg://spanloop.training.verl_plugin.supervised.{module}",
        f"data.custom_cls.name={class_name}",
        "engine.strategy=fsdp2",
        *optimiser_overrides(plan, optimiser="optim", learning_rate=plan.optimiser.learning_rate),
        *checkpoint_overrides(plan, checkpoint="checkpoint"),
    ]
