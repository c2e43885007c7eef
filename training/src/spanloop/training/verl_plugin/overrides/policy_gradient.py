"""Policy gradients over stored groups.

Advantages are computed once, when the dataset is exported (:mod:`~spanloop.training.dataset.groups`,
:mod:`~spanloop.training.dataset.credit`); those of ``ppo`` are verl's, from the values of its critic
(:mod:`.critic`). The sampler's own log-probabilities (``rollout_log_probs``) correct for the difference to the policy
at the start of each step by truncated importance sampling: per token, for ``gspo`` per row. So rows of an older policy
stay usable. Both log-probabilities are of the distribution at the temperature that the rows were sampled at. With
several passes over a batch the policy's are recomputed before the first, and anchor the clipped ratio; a single pass
computes them anyway (:mod:`~spanloop.training.verl_plugin.policy_loss`).
"""

from typing import Final

from spanloop.training.recipes.policy_gradient import TRUNCATE_WEIGHTS_AT, PolicyGradient
from spanloop.training.recipes.ppo import Ppo
from spanloop.training.spec.hydra_values import quoted

from ..train_plan import TrainPlan
from .common import checkpoint_overrides, engine_overrides, forward_overrides, kept_checkpoints, trainer_overrides
from .critic import critic_overrides
from .optimiser import optimiser_overrides

RECIPE_LOSS: Final = "spanloop_recipe"
"""verl's name for the loss of :mod:`~spanloop.training.verl_plugin.policy_loss`, which is the recipe's."""
_RECIPE_LOSS_CONFIG: Final = "spanloop.training.verl_plugin.policy_loss.RecipeLossConfig"
"""verl imports it in the process that trains, and with it the loss."""
STORED_ADVANTAGES: Final = "spanloop_stored"
"""``algorithm.adv_estimator`` of :class:`~spanloop.training.verl_plugin.stored_rollouts.StoredTrainer`: the advantages
of the dataset file, as they are."""
CRITIC_ADVANTAGES: Final = "gae"
"""verl's ``algorithm.adv_estimator`` of ppo: generalised advantage estimation (Schulman et al. 2016)."""


def policy_gradient_overrides(plan: TrainPlan) -> list[str]:
    """Return the overrides of verl's ``ppo_trainer`` configuration for a policy gradient of any kind."""
    recipe = policy_gradient_of(plan)
    actor = "actor_rollout_ref.actor"
    rollout = "actor_rollout_ref.rollout"
    tokens = plan.micro_batch_tokens
    single_pass = recipe.epochs == 1
    return [
        *trainer_overrides(plan),
        *engine_overrides(plan, model="actor_rollout_ref.model", engine=f"{actor}.fsdp_config"),
        "trainer.v1.trainer_mode=spanloop_stored",
        "trainer.val_before_train=False",
        f"trainer.max_actor_ckpt_to_keep={kept_checkpoints(plan)}",
        f"data.train_files={quoted(plan.dataset_path)}",
        f"data.val_files={quoted(plan.dataset_path)}",
        f"data.train_batch_size={plan.batch_size}",
        f"data.seed={plan.optimiser.seed}",
        f"data.shuffle={plan.shuffle}",
        "data.custom_cls.path=pkg://spanloop.training.verl_plugin.stored_rollouts",
        "data.custom_cls.name=GroupDataset",
        "data.dataloader_num_workers=0",
        f"data.max_prompt_length={plan.max_prompt_tokens}",
        f"data.max_response_length={plan.max_response_tokens}",
        f"{actor}.strategy=fsdp2",
        *optimiser_overrides(plan, optimiser=f"{actor}.optim", learning_rate=plan.optimiser.learning_rate),
        f"{actor}.ppo_mini_batch_size={plan.batch_size}",
        f"{actor}.ppo_epochs={recipe.epochs}",
        f"{actor}.data_loader_seed={plan.optimiser.seed}",
        f"{actor}.use_dynamic_bsz=True",
        f"{actor}.ppo_max_token_len_per_gpu={tokens}",
        f"{actor}.use_torch_compile=False",
        f"{actor}.loss_agg_mode={recipe.loss_aggregation}",
        # of seq-mean-token-sum-norm: without it verl divides by the length of the micro-batch, which varies
        f"{actor}.loss_scale_factor={plan.max_response_tokens}",
        # a single pass has no earlier forward pass that reports it
        f"{actor}.calculate_entropy={single_pass}",
        *_reference_overrides(plan, recipe),
        *checkpoint_overrides(plan, checkpoint=f"{actor}.checkpoint"),
        f"{rollout}.name=none",
        # the dataset holds each group's rows, so verl must not repeat prompts
        f"{rollout}.n=1",
        f"{rollout}.nnodes=1",
        f"{rollout}.temperature={plan.temperature}",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.log_prob_use_dynamic_bsz=True",
        f"{rollout}.log_prob_max_token_len_per_gpu={tokens}",
        f"{rollout}.calculate_log_probs=True",
        *_advantage_overrides(plan, recipe),
        "algorithm.use_kl_in_reward=False",
        "algorithm.rollout_correction.rollout_is=token",
        f"algorithm.rollout_correction.rollout_is_threshold={TRUNCATE_WEIGHTS_AT}",
        f"algorithm.rollout_correction.bypass_mode={single_pass}",
        *_loss_overrides(recipe, single_pass=single_pass),
        "reward.num_workers=0",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    ]


def policy_gradient_of(plan: TrainPlan) -> PolicyGradient:
    """Return the recipe of the plan of a policy gradient."""
    if not isinstance(plan.recipe, PolicyGradient):
        raise TypeError(f"{plan.job_id}: got the recipe {plan.recipe.kind}, expected a policy gradient")
    return plan.recipe


def _advantage_overrides(plan: TrainPlan, recipe: PolicyGradient) -> list[str]:
    if isinstance(recipe, Ppo):
        return [f"algorithm.adv_estimator={CRITIC_ADVANTAGES}", *critic_overrides(plan, recipe)]
    return [f"algorithm.adv_estimator={STORED_ADVANTAGES}", "critic.enable=False"]


def _loss_overrides(recipe: PolicyGradient, *, single_pass: bool) -> list[str]:
    """Return the loss: the recipe's own, or with several passes the one of verl that it names."""
    loss = "actor_rollout_ref.actor.policy_loss"
    if recipe.verl_loss and not single_pass:
        overrides = [f"{loss}.loss_mode={recipe.verl_loss}"]
    else:
        overrides = [
            f"{loss}._target_={_RECIPE_LOSS_CONFIG}",
            f"{loss}.loss_mode={RECIPE_LOSS}",
            f"+{loss}.recipe={quoted(recipe.model_dump_json())}",
            f"+{loss}.single_pass={single_pass}",
        ]
    return [
        *overrides,
        f"actor_rollout_ref.actor.clip_ratio_low={recipe.clip_ratio_low}",
        f"actor_rollout_ref.actor.clip_ratio_high={recipe.clip_ratio_high}",
    ]


def _reference_overrides(plan: TrainPlan, recipe: PolicyGradient) -> list[str]:
    """Return the KL loss to the base; without it verl loads no reference policy."""
    actor, reference = "actor_rollout_ref.actor", "actor_rollout_ref.ref"
    if not recipe.needs_reference:
        return [f"{actor}.use_kl_loss=False"]
    return [
        f"{actor}.use_kl_loss=True",
        f"{actor}.kl_loss_coef={recipe.kl_coefficient}",
        f"{actor}.kl_loss_type=low_var_kl",
        f"{reference}.use_torch_compile=False",
        *forward_overrides(plan, engine=f"{reference}.fsdp_config"),
    ]
