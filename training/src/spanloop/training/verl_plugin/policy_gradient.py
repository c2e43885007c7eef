# pyright: basic
"""Run a policy gradient of any kind on verl's V1 trainer.

The backbone ``ray`` reserves nodes of a Ray cluster and trains there; ``debug`` trains in this process alone. verl's
``main_ppo`` runs the trainer in a Ray actor. Here this process is the trainer, which saves one import of verl and
passes exceptions to :mod:`.main` unchanged. Imports dominate a small job on a small machine, so TransferQueue's
processes start while this process imports verl and verl's worker starts.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spanloop.training.recipes.ppo import VALUE_COEFFICIENT, Ppo
from spanloop.training.spec.choices import Backbone

from .overrides.policy_gradient import policy_gradient_of, policy_gradient_overrides
from .ranks import this_rank
from .train_plan import TrainPlan

VERL_MODULES_ENV = "VERL_USE_EXTERNAL_MODULES"
"""Modules that verl imports in every process, separated by commas."""


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
    from .ray_cluster.session import ray_session  # noqa: PLC0415 - the backbone debug needs none

    modules = (os.environ.get(VERL_MODULES_ENV), "spanloop.training.verl_plugin.ray_cluster.job_transfer_queue")
    os.environ[VERL_MODULES_ENV] = ",".join(filter(None, modules))
    with ray_session(plan) as groups, ThreadPoolExecutor(max_workers=1) as background:
        # Ray starts first; see the module's docstring
        import transfer_queue as tq  # noqa: PLC0415

        from .ray_cluster import job_transfer_queue as _of_this_job  # noqa: F401, PLC0415 - before the queue starts
        from .verl_config import compose  # noqa: PLC0415

        config = compose("ppo_trainer", policy_gradient_overrides(plan), plan.run.verl)
        config.transfer_queue.enable = True
        queue = background.submit(tq.init, config.transfer_queue)
        _fit(plan, config, queue.result, groups)


def _fit(plan: TrainPlan, config: Any, queue_ready: Callable[[], object], groups: Sequence[Any] = ()) -> None:
    from verl.trainer.ppo.v1 import get_trainer_cls  # noqa: PLC0415
    from verl.utils.config import validate_config  # noqa: PLC0415

    from .stored_rollouts import TRAINER_MODE, StoredRollouts  # noqa: PLC0415

    validate_config(config=config, use_reference_policy=plan.recipe.needs_reference, use_critic=config.critic.enable)
    trainer: Any = get_trainer_cls(TRAINER_MODE)(config=config)
    trainer.groups = groups
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
