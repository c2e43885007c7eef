"""Each recipe from the command line to verl: its configuration, and runs of the tiny model through Ray."""

import importlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.base_model import read_base_model
from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Job, JobApi
from spanloop.training.run.planning import make_plan
from spanloop.training.spec.choices import Device
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.verl_plugin.overrides.policy_gradient import policy_gradient_overrides
from spanloop.training.verl_plugin.overrides.sft import sft_overrides

from ..recipe_kinds import POLICY_GRADIENTS
from ..run.test_run_job import assert_trained, at, wait_until
from ..training_running import Runner
from ..training_seeding import seed_groups
from ..verl_plugin.test_compute import MANIFEST

KINDS = ["sft", *POLICY_GRADIENTS]


class Recipe(NamedTuple):
    """What verl's configuration says of a recipe."""

    advantages: str
    loss: str
    aggregation: str
    kl: float
    has_critic: bool = False


RECIPES = {
    "dr_grpo": Recipe("spanloop_stored", "spanloop_recipe", "seq-mean-token-sum-norm", 0),
    "grpo": Recipe("spanloop_stored", "spanloop_recipe", "seq-mean-token-mean", 0.04),
    "rloo": Recipe("spanloop_stored", "spanloop_recipe", "seq-mean-token-sum", 0),
    "gspo": Recipe("spanloop_stored", "spanloop_recipe", "seq-mean-token-mean", 0),
    "reinforce_plus_plus": Recipe("spanloop_stored", "spanloop_recipe", "token-mean", 0),
    "ppo": Recipe("gae", "spanloop_recipe", "token-mean", 0, has_critic=True),
}


def submit(data_dir: DataDir, kind: str, tmp_path: Path, *options: str) -> Job:
    """Through the command line, once by options and once by a job file; only the second job stays queued."""
    settings = {"base": "tiny", "kind": str(kind), "steps": "3", "batch_groups": "3"}
    arguments = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", value)]
    file = tmp_path / "job.toml"
    file.write_text(f'base = "tiny"\nkind = "{kind}"\nsteps = 3\nbatch_groups = 3\n')
    jobs: list[Job] = []
    for given in (arguments, [str(file)]):
        completed = CliRunner().invoke(command_tree.app, ["train", *given, *options, "--data-dir", str(data_dir.path)])
        assert completed.exit_code == 0, completed.output
        jobs.append(JobApi(data_dir).get(completed.stdout.strip()))
    assert jobs[0].spec == jobs[1].spec
    JobApi(data_dir).cancel(jobs[0].id)
    return jobs[1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_recipe_comes_from_the_command_line_to_verl(
    kind: str, data_dir: DataDir, tiny_model: Path, tmp_path: Path
) -> None:
    # verl warns about itself, and takes seconds to import
    compose = importlib.import_module("spanloop.training.verl_plugin.verl_config").compose
    version = Registry(data_dir).add("tiny", tiny_model)
    options = ["--learning-rate", "1e-3", "--lr-scheduler-type", "cosine", "--lr-warmup-steps", "1"]
    spec = submit(data_dir, kind, tmp_path, *options, "--weight-decay", "0.1", "--clip-grad", "0.5").spec
    base = read_base_model(version.reference, version.path)
    plan = make_plan(spec, base, MANIFEST, folder=tmp_path, attempt=1, ray_folder=tmp_path)
    plan = plan.model_copy(update={"device": Device.CPU, "bfloat16": False})
    if kind == "sft":
        optimiser: Any = compose("sft_trainer_engine", sft_overrides(plan)).optim
    else:
        config = compose("ppo_trainer", policy_gradient_overrides(plan))
        actor = config.actor_rollout_ref.actor
        optimiser = actor.optim
        expected = RECIPES[str(kind)]
        assert (
            Recipe(
                config.algorithm.adv_estimator,
                actor.policy_loss.loss_mode,
                actor.loss_agg_mode,
                actor.kl_loss_coef if actor.use_kl_loss else 0,
                has_critic=config.critic.enable,
            )
            == expected
        )
        assert json.loads(actor.policy_loss.recipe)["kind"] == kind
        if expected.has_critic:
            assert (config.critic.model.path, config.critic.optim.lr) == (str(version.path), 1e-5)
    names = ("lr", "lr_scheduler_type", "lr_warmup_steps", "weight_decay", "clip_grad")
    assert tuple(optimiser[name] for name in names) == (1e-3, "cosine", 1, 0.1, 0.5)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", POLICY_GRADIENTS)
def test_a_recipe_trains_stored_rows(kind: str, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model)
    job = submit(runner.data_dir, kind, tmp_path, "--learning-rate", "1e-3", "--kl-budget", "10")
    process, _ = runner.start(job.id, tmp_path / "log.txt")
    assert process.wait(timeout=280) == 0, (tmp_path / "log.txt").read_text()
    metrics = assert_trained(runner, store, job.id, loss="actor/pg_loss")
    assert at(metrics, 1, "actor/grad_norm") > 0
    names = set(metrics["name"])
    assert ("actor/kl_loss" in names) is (kind == "grpo")
    assert ("critic/vf_loss" in names) is (kind == "ppo")
    if kind == "ppo":
        # the head starts with zeros: before its first update each value is 0, and the loss half the mean of R²
        assert at(metrics, 1, "critic/values/max") == at(metrics, 1, "critic/values/min") == 0
        assert at(metrics, 1, "critic/vf_loss") == pytest.approx(0.5 * at(metrics, 1, "critic/returns/mean"), abs=1e-3)
        assert at(metrics, 3, "critic/values/max") > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_ppo_job_goes_on_with_its_critic(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(kind="ppo", base="tiny", steps=20, learning_rate=1e-4, critic_learning_rate=1e-3,
                   batch_groups=4, max_passes=100, kl_budget=10)  # fmt: skip
    job = runner.submit(spec)
    folder = ControlPaths.of(runner.data_dir).job(job.id)
    process, mark = runner.start(job.id, tmp_path / "log.txt")
    wait_until(lambda: latest_checkpoint(folder / "checkpoints"), timeout_s=240)
    process.kill()
    process.wait()
    runner.requeue(mark)
    process, mark = runner.start(job.id, tmp_path / "log.txt")
    assert process.wait(timeout=280) == 0, (tmp_path / "log.txt").read_text()
    metrics = assert_trained(runner, store, job.id, loss="critic/vf_loss")
    values = metrics.filter(pl.col("name") == "critic/values/mean").sort("step")["value"].to_list()
    # a critic that started again would value everything at 0
    assert values[0] == 0
    assert all(value != 0 for value in values[1:])
    losses = metrics.filter(pl.col("name") == "critic/vf_loss").sort("step")["value"].to_list()
    assert losses[-1] < losses[0]
