# pyright: basic
"""Run a policy gradient of any kind on verl's V1 trainer.

The backbone ``ray`` starts Ray, trains and stops Ray; ``debug`` trains in this process alone. verl's ``main_ppo`` runs
the trainer in a Ray actor. Here this process is the trainer, which saves one import of verl and passes exceptions to
:mod:`.main` unchanged. Imports dominate a small job on a small machine, so TransferQueue's processes start while this
process imports verl and verl's worker starts.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from spanloop.foundation.errors import JobError
from spanloop.training.recipes.ppo import VALUE_COEFFICIENT, Ppo
from spanloop.training.spec.choices import Backbone

from .overrides.policy_gradient import policy_gradient_of, policy_gradient_overrides
from .ranks import this_rank
from .train_plan import TrainPlan


def train(plan: TrainPlan) -> None:
    """Run the job of ``plan``; its last checkpoint is the result."""
    if plan.run.backbone is Backbone.DEBUG:
        _train_in_this_process(plan)
    else:
        _train_on_ray(plan)


def _train_in_this_process(plan: TrainPlan) -> None:
    with this_rank():
        from .engine.debug_backbone import debug_backbone  # noqa: PLC0415 - imports verl
        from .verl_config import compose  # noqa: PLC0415

        with debug_backbone():
            _fit(plan, compose("ppo_trainer", policy_gradient_overrides(plan), plan.run.verl), queue_ready=lambda: None)


def _train_on_ray(plan: TrainPlan) -> None:
    from .ray_cluster import ray_session  # noqa: PLC0415 - the backbone debug needs none

    with ray_session(plan), ThreadPoolExecutor(max_workers=1) as background:
        import transfer_queue as tq  # noqa: PLC0415 - Ray starts first; see the module's docstring

        from .verl_config import compose  # noqa: PLC0415

        config = compose("ppo_trainer", policy_gradient_overrides(plan), plan.run.verl)
        config.transfer_queue.enable = True
        queue = background.submit(partial(_start_queue, plan, config.transfer_queue))
        _fit(plan, config, queue.result)
        if plan.run.ray_address:
            # The job's own cluster needs no cleanup, and closing takes a second.
            tq.close()


def _start_queue(plan: TrainPlan, config: Any) -> None:
    """Start this job's TransferQueue; its name on a Ray cluster is fixed.

    Raises:
        JobError: Another job has a queue on the cluster; two trainers in one queue would train on each other's rows.
    """
    import transfer_queue as tq  # noqa: PLC0415

    tq.init(config)
    # Only the process that created the controller has storage; this also detects a name taken at the same instant.
    if not tq.interface._TQ_STORAGE:  # noqa: SLF001 - no public call tells the two apart
        raise JobError(
            f"another job trains with TransferQueue on the Ray cluster {plan.run.ray_address}.",
            next_step="Retry when it has ended, or submit without ray_address, for a cluster of the job's own.",
        )


def _fit(plan: TrainPlan, config: Any, queue_ready: Callable[[], object]) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls  # noqa: PLC0415
    from verl.utils.config import validate_config  # noqa: PLC0415

    from .stored_rollouts import TRAINER_MODE, StoredRollouts  # noqa: PLC0415

    validate_config(config=config, use_reference_policy=plan.recipe.needs_reference, use_critic=config.critic.enable)
    trainer: Any = get_trainer_cls(TRAINER_MODE)(config=config)
    trainer.recipe = recipe = policy_gradient_of(plan)
    trainer.samples_path = plan.samples_path
    trainer.lease_token = plan.lease_token
    trainer.max_checkpoints = plan.run.max_ckpt_to_keep
    trainer.value_coefficient = recipe.value_coefficient if isinstance(recipe, Ppo) else VALUE_COEFFICIENT
    trainer.queue_ready = queue_ready
    trainer.init()
    try:
        trainer.fit(StoredRollouts(plan.dataset_path))
    except Exception:
        trainer.keep_saved()
        raise
    trainer.finish_saving()
    trainer.logger.finish(exit_code=0)
