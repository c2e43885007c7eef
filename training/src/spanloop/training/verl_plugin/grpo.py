# pyright: basic
"""GRPO on verl's V1 trainer: starts Ray, trains, ends Ray.

verl's ``main_ppo`` runs the trainer in a Ray actor of its own; here this process is the trainer, which saves one
import of verl (seconds on a small machine) and lets an exception reach :mod:`.main` as itself.
"""

import transfer_queue as tq
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.utils.config import validate_config

from spanloop.training.recipes.grpo import grpo_overrides

from .compose import compose
from .plan import TrainPlan
from .ray_cluster import ray_session
from .stored import TRAINER_MODE, StoredRollouts


def train(plan: TrainPlan) -> None:
    """Run the whole job of ``plan``; its last checkpoint holds the result."""
    config = compose("ppo_trainer", grpo_overrides(plan))
    validate_config(config=config, use_reference_policy=False, use_critic=False)
    config.transfer_queue.enable = True
    with ray_session(plan):
        tq.init(config.transfer_queue)
        trainer = get_trainer_cls(TRAINER_MODE)(config=config)
        trainer.init()
        trainer.fit(StoredRollouts(plan.dataset_path))
        trainer.mark_saved()
        trainer.logger.finish(exit_code=0)
        tq.close()
