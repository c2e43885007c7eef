"""The learning demo: evaluate a small real model as an agent, and train it on its own traces in rounds.

Fetch the model → serve it → evaluate it on test tasks. Then in each round: the champion attempts training tasks → train
it on these attempts → evaluate the new version → the promotion rule decides which of the two is the champion. The first
round is SFT on the successful attempts, each other one Dr. GRPO on all. ``learning_report`` reads the figures from the
store.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from .agent_runner import AgentRun
from .experiment import TRAIN_PREFIX, Experiment

if TYPE_CHECKING:
    from datetime import datetime

    from spanloop.training.run.job_api import JobSpec


class Recipe(NamedTuple):
    """Settings of the demo; the defaults were measured on two cores (docs/benchmarks.md)."""

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
        from spanloop.training.recipes.base import LearnsFrom
        from spanloop.training.recipes.registry import find_recipe
        from spanloop.training.run.job_api import JobSpec

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


class Versions(NamedTuple):
    """The versions of a demo, as ``name@version``."""

    all: list[str]
    """In order, the base first."""
    champion: str
    """That the rule chose last."""


def run_loop(experiment: Experiment, recipe: Recipe) -> Versions:
    """Run the unfinished stages of the demo.

    Raises:
        SpanloopError: A stage failed.
    """
    champion = experiment.add_model(recipe.source)
    experiment.make_tasks(train=recipe.train_tasks, test=recipe.test_tasks)
    experiment.evaluate(champion)
    versions = [champion]
    for number in range(1, recipe.rounds + 1):
        candidate = _learn(experiment, recipe, number, champion)
        experiment.evaluate(candidate)
        champion = experiment.decide(candidate)
        versions.append(candidate)
    return Versions(versions, champion)


def _learn(experiment: Experiment, recipe: Recipe, number: int, champion: str) -> str:
    """Collect episodes of ``champion`` on the training tasks and train on them; return the new version."""
    kind, attempts = ("sft", recipe.sft_attempts) if number == 1 else ("dr_grpo", recipe.grpo_attempts)
    run = AgentRun(experiment.agent.train, attempts)
    since = experiment.collect(f"collect {number}", f"{champion} attempts the training tasks", run, version=champion)
    title = f"verl trains {champion} on its own attempts ({kind.upper()})"
    return experiment.train(f"train {number}", title, recipe.job(kind, champion, since))
