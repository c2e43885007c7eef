"""Settings of an experiment with the office agent: SFT on successful attempts, and policy gradients on all of them."""

from typing import TYPE_CHECKING, Any, NamedTuple

from spanloop.training.recipes.base import LearnsFrom
from spanloop.training.recipes.registry import find_recipe
from spanloop.training.run.job_api import JobSpec

from .experiment import TRAIN_PREFIX

if TYPE_CHECKING:
    from datetime import datetime


class Recipe(NamedTuple):
    """The settings; the defaults train longer than the demo (examples/office/app.toml), on more tasks."""

    source: str = "smollm2"
    """The model's source, as for ``spanloop models add``."""
    seed: int = 0
    """Seed of tasks, shuffling and intervals. Sampling is not seeded, as in production."""
    rounds: int = 2
    test_tasks: int = 200
    train_tasks: int = 128
    sft_attempts: int = 4
    """Attempts of the base model at each training task."""
    sft_steps: int = 12
    sft_batch: int = 16
    sft_learning_rate: float = 3e-5
    grpo_attempts: int = 4
    """Attempts of the SFT model at each training task; the size of a group."""
    grpo_steps: int = 8
    grpo_batch: int = 16
    grpo_learning_rate: float = 3e-6

    def job(self, kind: str, base: str, since: "datetime", **changes: Any) -> "JobSpec":
        """Return the job that trains ``base`` on its own attempts since ``since``.

        Args:
            kind: ``sft`` and policy gradients have the recipe's steps and rates; another kind has its own defaults.
            base: The version.
            since: Time before the first attempt.
            **changes: Settings that differ from the recipe's.
        """
        settings: dict[str, Any] = {
            "kind": kind,
            "base": base,
            "policy_version": base,
            "task_prefix": TRAIN_PREFIX,
            "since": since,
            "seed": self.seed,
            # the recipe's number of steps is part of the measurement
            "max_passes": 1000,
            "pause_serving": True,
        }
        learns_from = find_recipe(kind).learns_from
        if learns_from is LearnsFrom.TEXT:
            settings |= {
                "steps": self.sft_steps,
                "batch_groups": self.sft_batch,
                "learning_rate": self.sft_learning_rate,
                "min_reward": 1.0,
                "tokens": "captured",
            }
        elif learns_from is LearnsFrom.ROWS:
            settings |= {
                "steps": self.grpo_steps,
                "batch_groups": self.grpo_batch,
                "group_size": max(2, self.grpo_attempts),
                "learning_rate": self.grpo_learning_rate,
                # the recipe was measured with these
                "loss_aggregation": "token-mean",
                "kl_budget": None,
            }
        return JobSpec.model_validate(settings | changes)
