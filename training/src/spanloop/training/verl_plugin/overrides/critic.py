"""The overrides of ppo's critic: a value function that starts from the base and learns from the stored rewards."""

from spanloop.training.recipes.ppo import Ppo

from ..train_plan import TrainPlan
from .common import checkpoint_overrides, engine_overrides, kept_checkpoints
from .optimiser import optimiser_overrides


def critic_overrides(plan: TrainPlan, recipe: Ppo) -> list[str]:
    """Return the overrides of verl's ``critic``, and of the advantages that its values give."""
    return [
        f"algorithm.lam={recipe.gae_lambda}",
        "algorithm.gamma=1.0",
        "critic.enable=True",
        "critic.strategy=fsdp2",
        *engine_overrides(plan, model="critic.model", engine="critic.fsdp"),
        *optimiser_overrides(plan, optimiser="critic.optim", learning_rate=recipe.critic_learning_rate),
        f"critic.ppo_mini_batch_size={plan.batch_size}",
        f"critic.ppo_epochs={recipe.epochs}",
        f"critic.data_loader_seed={plan.optimiser.seed}",
        "critic.use_dynamic_bsz=True",
        f"critic.ppo_max_token_len_per_gpu={plan.micro_batch_tokens}",
        f"+critic.ppo_infer_max_token_len_per_gpu={plan.micro_batch_tokens}",
        # a value is learned for each token alike, whatever the policy's loss does with rows
        "critic.loss_agg_mode=token-mean",
        *checkpoint_overrides(plan, checkpoint="critic.checkpoint", has_model=False),
        f"critic.cliprange_value={recipe.cliprange_value}",
        f"trainer.max_critic_ckpt_to_keep={kept_checkpoints(plan)}",
    ]
