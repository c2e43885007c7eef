import json
import math
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file  # pyright: ignore[reportUnknownVariableType] - half annotated
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from spanloop.foundation.cpu_features import computes_bfloat16
from spanloop.foundation.processes.identity import send_signal
from spanloop.foundation.processes.marked import find_processes
from spanloop.semconv import attributes as names
from spanloop.store import Store
from spanloop.training.dataset.manifest import DATA_NAME, load_manifest
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.checkpoints import latest_checkpoint
from spanloop.training.models.registry import Registry
from spanloop.training.models.serving_copy import serving_path
from spanloop.training.recipes.choices import Credit, Outcomes
from spanloop.training.run.job_api import Device, Job, JobApi, JobSpec
from spanloop.training.run.monitor.job_trace import trace_id_of
from spanloop.training.run.run_job import SPEC_NAME
from spanloop.training.spec.choices import Backbone, Logger
from spanloop.training.verl_plugin.drift import KL
from spanloop.training.verl_plugin.main import TENSORBOARD_NAME
from spanloop.training.verl_plugin.train_plan import TrainPlan

from ..gateway_stand_in import gateway_stand_in
from ..ray_nodes import NOTHING, other_trainer, ray_nodes
from ..recipe_kinds import KINDS
from ..training_running import Runner
from ..training_seeding import failure_row, insert, seed_groups

VOCABULARY = 400
LOGPROB_TOLERANCE = 0.02 if computes_bfloat16() else 1e-3
"""Of the ratio between the engine's probability of a token and that of a float32 forward pass; float32 itself gives
1e-6."""
BACKBONES = pytest.mark.parametrize("backbone", [Backbone.DEBUG, Backbone.RAY])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def dr_grpo(**changes: Any) -> JobSpec:
    return JobSpec.of(kind="dr_grpo", base="tiny", steps=3, learning_rate=1e-3, batch_groups=3, **changes)


def wait_until(condition: Callable[[], object], *, timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up_at, "the condition did not become true in time"
        time.sleep(0.1)


def assert_trained(runner: Runner, store: Store, job_id: str, *, loss: str) -> pl.DataFrame:
    """A new version with other weights, and metrics of every step; returns the metrics."""
    job = JobApi(runner.data_dir).get(job_id)
    registry = Registry(runner.data_dir)
    base, trained = registry.get("tiny@v1"), registry.get(job.model_version)
    assert (trained.parent, trained.job_id) == (base.reference, job_id)
    old, new = weights(base.path), weights(trained.path)
    assert old.keys() == new.keys()
    assert all(new[name].isfinite().all() for name in new)
    assert any(not new[name].equal(old[name]) for name in new)
    assert (trained.path / "tokenizer.json").read_bytes() == (base.path / "tokenizer.json").read_bytes()
    manifest = load_manifest(ControlPaths.of(runner.data_dir).job(job_id))
    assert manifest is not None
    assert trained.metadata["dataset_sha256"] == manifest.data_sha256
    metrics = store.query("training_metrics", job_id=job_id)
    steps = metrics.filter(pl.col("name") == loss)["step"].to_list()
    assert steps == list(range(1, job.spec.optimiser.steps + 1))
    assert (job.step, job.steps_total) == (job.spec.optimiser.steps, job.spec.optimiser.steps)
    return metrics


def at(metrics: pl.DataFrame, step: int, name: str) -> float:
    return float(metrics.filter((pl.col("step") == step) & (pl.col("name") == name))["value"].item())


@pytest.mark.slow
@BACKBONES
@pytest.mark.timeout(600)
def test_a_policy_gradient_trains_stored_groups(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path, backbone: Backbone
) -> None:
    seed_groups(store, tiny_model, sampling={"temperature": "0.7"})
    insert(store, "failures", [failure_row("task-0-episode-1", 1, "policy", is_recovered=True)])
    spec = dr_grpo(pause_serving=True, credit=Credit.ATTRIBUTED).changed(batch_groups=4, backbone=backbone)
    with gateway_stand_in(runner.data_dir) as gateway:
        job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    assert gateway.paths == ["pause", "resume"]
    assert gateway.asked[0][1]["holder"] == f"job {job.id}"
    assert "temperature: 0.7" in log
    metrics = assert_trained(runner, store, job.id, loss="actor/pg_loss")
    # before the first update the engine's log-probabilities are those of an independent forward pass at 0.7
    assert at(metrics, 1, "rollout_corr/rollout_is_max") == pytest.approx(1, abs=LOGPROB_TOLERANCE)
    assert at(metrics, 1, "rollout_corr/rollout_is_min") == pytest.approx(1, abs=LOGPROB_TOLERANCE)
    assert at(metrics, 3, "rollout_corr/rollout_is_max") > 1 + LOGPROB_TOLERANCE
    assert 0 < at(metrics, 1, "rollout_corr/logprob_abs_diff_mean") < LOGPROB_TOLERANCE
    # a batch has all groups, so verl's advantages are those of the whole file
    tokens = pl.read_parquet(ControlPaths.of(runner.data_dir).job(job.id) / DATA_NAME).explode(
        "loss_mask", "advantages"
    )
    advantages = tokens.filter(pl.col("loss_mask") == 1)["advantages"]
    assert sorted(advantages.unique()) == [-0.5, 0, 0.5]
    for step in (1, 2, 3):
        found = [at(metrics, step, f"critic/advantages/{name}") for name in ("min", "mean", "max")]
        assert found == pytest.approx([advantages.min(), advantages.mean(), advantages.max()], abs=1e-5)
    assert 0 < at(metrics, 1, "actor/entropy") < math.log(VOCABULARY) + 0.01
    assert at(metrics, 1, "batch_reward") > 0
    assert abs(at(metrics, 1, "rollout_corr/k3_kl")) < at(metrics, 3, "rollout_corr/k3_kl")
    assert at(metrics, 1, "rollout_corr/rollout_is_eff_sample_size") == pytest.approx(1, abs=LOGPROB_TOLERANCE)
    assert at(metrics, 1, "rollout_corr/rollout_is_ratio_fraction_high") == 0
    assert at(metrics, 1, "actor/grad_norm") > 0
    assert at(metrics, 1, "rows/age_versions/max") == 0
    assert at(metrics, 1, "rows/age_days/mean") > 0
    assert not list(ControlPaths.of(runner.data_dir).job(job.id).glob("checkpoints"))
    assert_recorded(store, job, rows=24, policy_loss=metrics)
    assert_traced(store, job)


def assert_recorded(store: Store, job: Job, *, rows: int, policy_loss: pl.DataFrame | None = None) -> None:
    """Each step has a record of each row of its batch; of a policy gradient they add up to verl's loss."""
    samples = store.query("training_samples", job_id=job.id)
    assert samples.group_by("step").len().sort("step").rows() == [
        (step, rows) for step in range(1, job.spec.optimiser.steps + 1)
    ]
    assert samples.select("step", "sample").is_unique().all()
    assert samples.filter(~pl.col("episode_id").str.starts_with("task-")).is_empty()
    assert (samples["tokens"] > 0).all()
    assert (samples["trained_steps"].list.len() == 1).all()
    if policy_loss is None:
        assert (samples["loss"] > 0).all()
        return
    losses = samples.group_by("step").agg(pl.col("loss").sum()).sort("step")["loss"]
    assert losses.to_list() == pytest.approx([at(policy_loss, step, "actor/pg_loss") for step in (1, 2, 3)], abs=1e-6)
    first = samples.filter(pl.col("step") == 1)
    assert first["new_logprob"].to_list() == pytest.approx(first["old_logprob"].to_list(), abs=LOGPROB_TOLERANCE)
    assert first["importance_max"].max() == pytest.approx(at(policy_loss, 1, "rollout_corr/rollout_is_max"), abs=1e-5)


def assert_traced(store: Store, job: Job) -> None:
    """The job is one trace with a span of each part and step."""
    spans = store.query("trace_spans", trace_id=trace_id_of(job.id, job.attempt))
    counts = dict(spans.group_by("SpanName").len().rows())
    assert counts["rl.step"] == job.spec.optimiser.steps
    assert {name for name, count in counts.items() if count == 1} >= {"rl.job", "rl.export", "rl.train", "rl.register"}
    register = dict(spans.filter(pl.col("SpanName") == "rl.register")["SpanAttributes"][0])
    assert register[names.RL_MODEL_VERSION] == job.model_version


@pytest.mark.slow
@BACKBONES
@pytest.mark.timeout(600)
def test_sft_trains_the_good_rows_and_a_failed_deployment_says_that_they_are_not_lost(
    backbone: Backbone, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(
        kind="sft", base="tiny", name="imitator", steps=3, learning_rate=1e-3, min_reward=1.0,
        deploy_always=True, pause_serving=True, backbone=backbone,
    )  # fmt: skip
    with gateway_stand_in(runner.data_dir) as gateway:
        gateway.refusals["deploy"] = (500, "the engine ran out of memory")
        job, status, log = runner.run(spec, tmp_path / "log.txt")
        assert status == 1, log
        assert f"Job {job.id} trained and registered imitator@v1, but could not deploy it" in log
        assert "spanloop models deploy imitator@v1" in log
        assert gateway.paths == ["pause", "deploy", "resume"]
        metrics = assert_trained(runner, store, job.id, loss="train/loss")
        gateway.refusals.clear()
        gateway.asked.clear()
        runner.fail(job.id)
        JobApi(runner.data_dir).retry(job.id)
        process, _ = runner.start(job.id, tmp_path / "again.txt")
        assert process.wait(timeout=280) == 0, (tmp_path / "again.txt").read_text()
    assert_recorded(store, job, rows=8)
    # trained once: the second attempt only deploys
    assert [path for path, _ in gateway.asked] == ["deploy"]
    body = gateway.asked[0][1]
    assert (body["name"], body["version"], body["holder"]) == ("imitator", "v1", f"job {job.id}")
    assert JobApi(runner.data_dir).get(job.id).model_version == "imitator@v1"
    folder = ControlPaths.of(runner.data_dir).job(job.id)
    assert JobSpec.model_validate_json((folder / SPEC_NAME).read_bytes()) == spec
    manifest = load_manifest(folder)
    assert manifest is not None
    assert manifest.rows.rejected == {"below_min_reward": 8}
    assert at(metrics, 3, "train/loss") < at(metrics, 1, "train/loss")


@pytest.mark.slow
@BACKBONES
@pytest.mark.timeout(600)
def test_a_job_validates_logs_and_overrides_as_its_settings_say(
    backbone: Backbone, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(
        kind="sft", base="tiny", steps=3, batch_groups=1, gradient_accumulation_steps=2, learning_rate=1e-3,
        outcomes=Outcomes.ALL, test_freq=2, held_out_share=0.3, save_freq=2, loggers=(Logger.TENSORBOARD,),
        verl=("optim.betas=[0.8,0.9]",), backbone=backbone,
    )  # fmt: skip
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    metrics = store.query("training_metrics", job_id=job.id)
    losses = metrics.filter(pl.col("name") == "val/loss")
    assert losses["step"].to_list() == [2, 3]
    assert at(metrics, 1, "train/loss") > 0
    folder = ControlPaths.of(runner.data_dir).job(job.id)
    assert list((folder / TENSORBOARD_NAME).glob("events.out.*"))
    plan = TrainPlan.model_validate_json((folder / "plan.json").read_bytes())
    assert (plan.batch_size, plan.save_every_steps, plan.run.verl) == (2, 2, spec.run.verl)
    manifest = load_manifest(folder)
    assert manifest is not None
    held_out = pl.read_parquet(folder / "held_out.parquet")
    assert manifest.rows.rejected == {"held_out": held_out.height}
    trained = set(pl.read_parquet(folder / DATA_NAME)["group_id"])
    assert trained.isdisjoint(held_out["group_id"])
    assert "betas': [0.8, 0.9]" in log
    # verl logs them in two lines
    final_metrics = Registry(runner.data_dir).get(job.model_version).metadata["final_metrics"]
    assert isinstance(final_metrics, dict)
    assert final_metrics.keys() >= {"train/loss", "val/loss"}


@pytest.mark.slow
def test_a_job_without_data_fails_with_the_reason(runner: Runner, store: Store, tmp_path: Path) -> None:
    assert not store.query("store_counts").is_empty()
    job, status, log = runner.run(dr_grpo(), tmp_path / "log.txt")
    assert status == 1
    assert "no episode matches its filters" in log
    assert "next: " in log
    assert "Traceback" not in log
    assert job.model_version == ""


@pytest.mark.slow
def test_a_device_that_is_not_there_is_refused(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    seed_groups(store, tiny_model, groups=1)
    with gateway_stand_in(runner.data_dir) as gateway:
        spec = dr_grpo(device=Device.CUDA, pause_serving=True, deploy_always=True)
        _, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 1
    assert gateway.paths == ["pause", "resume"]
    assert "sees no CUDA device" in log
    assert "next: Install a CUDA build of torch" in log


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_fails_inside_verl_is_reported(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model, groups=1)
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"intermediate_size": config["intermediate_size"] * 2}))
    Registry(runner.data_dir).add("broken", broken)
    job, status, log = runner.run(JobSpec.of(kind="sft", base="broken", steps=1), tmp_path / "log.txt")
    assert status == 1
    assert f"Job {job.id} (sft) failed inside verl: RuntimeError" in log
    assert job.model_version == ""
    assert [model.reference for model in Registry(runner.data_dir).list("broken")] == ["broken@v1"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_job_goes_on_from_its_checkpoint(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec.of(kind="dr_grpo", base="tiny", steps=60, learning_rate=1e-5, batch_groups=2, max_passes=100)
    job = runner.submit(spec)
    folder = ControlPaths.of(runner.data_dir).job(job.id)
    process, mark = runner.start(job.id, tmp_path / "log.txt")
    wait_until(lambda: latest_checkpoint(folder / "checkpoints"), timeout_s=240)
    manifest = (folder / "manifest.json").read_bytes()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # verl dies with run_job, and its Ray with verl: nothing is left for anybody to clean up
    wait_until(lambda: not find_processes(None, mark), timeout_s=120)
    reached = latest_checkpoint(folder / "checkpoints")
    assert reached is not None
    assert reached.step < spec.optimiser.steps
    assert Registry(runner.data_dir).list("tiny")[0].version == "v1"

    runner.requeue(mark)
    process, mark = runner.start(job.id, tmp_path / "log.txt")
    assert process.wait(timeout=280) == 0, (tmp_path / "log.txt").read_text()
    assert (folder / "manifest.json").read_bytes() == manifest
    assert_trained(runner, store, job.id, loss="actor/pg_loss")
    first_again = min(
        int(line.split(b'"step":')[1].split(b",")[0]) for line in (folder / "metrics-2.jsonl").read_bytes().splitlines()
    )
    assert first_again == reached.step + 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_dpo_trains_on_pairs_of_attempts(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model)
    insert(store, "failures", [failure_row("task-0-episode-1", 1, "policy", is_recovered=True)])
    spec = JobSpec.of(kind="dpo", base="tiny", steps=4, learning_rate=1e-3, batch_groups=8, pairs_per_group=2)
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    metrics = assert_trained(runner, store, job.id, loss="train/loss")
    assert at(metrics, 1, "train/loss") == pytest.approx(math.log(2), abs=LOGPROB_TOLERANCE)
    assert at(metrics, 4, "train/loss") < at(metrics, 1, "train/loss")
    assert at(metrics, 4, "dpo/accuracy") == 1
    manifest = load_manifest(ControlPaths.of(runner.data_dir).job(job.id))
    assert manifest is not None
    assert (manifest.pairs, manifest.prompt_groups, manifest.groups.rejected) == (8, 0, {"reward_constant": 1})
    assert manifest.rows.rejected == {"all_steps_masked": 1, "reward_constant": 6}
    assert "pairs: 8" in log
    file = pl.read_parquet(ControlPaths.of(runner.data_dir).job(job.id) / DATA_NAME)
    sides = file.unique(("pair_id", "side")).sort("pair_id", "side")
    assert sides["side"].to_list() == ["chosen", "rejected"] * 8
    assert sides["reward"].to_list() == [1.0, 0.0] * 8
    assert sorted(file["episode_id"].unique()) == [f"task-{group}-episode-{n}" for group in range(4) for n in range(4)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_passes_recompute_log_probabilities(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    job, status, log = runner.run(dr_grpo(epochs=2), tmp_path / "log.txt")
    assert status == 0, log
    metrics = assert_trained(runner, store, job.id, loss="actor/pg_loss")
    assert at(metrics, 1, "rollout_corr/rollout_is_max") == pytest.approx(1, abs=LOGPROB_TOLERANCE)
    assert 0 < at(metrics, 1, "rollout_corr/logprob_abs_diff_mean") < LOGPROB_TOLERANCE
    assert at(metrics, 1, "actor/entropy") > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_whose_attention_is_not_known_is_trained_without_sharing(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=2)
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    configs: Any = LlamaConfig
    shape = configs.from_pretrained(tiny_model).to_dict()
    kept = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    models: Any = MistralForCausalLM
    models(MistralConfig(**{name: shape[name] for name in kept}, num_key_value_heads=1)).save_pretrained(other)
    Registry(runner.data_dir).add("other", other)
    job, status, log = runner.run(dr_grpo().changed(base="other"), tmp_path / "log.txt")
    assert status == 0, log
    assert "prompts are not shared between rows of this model: models of type 'mistral'" in log
    assert job.model_version == "other@v2"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_loss_that_is_no_number_ends_the_job(
    kind: str, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    broken = tmp_path / "broken"
    shutil.copytree(tiny_model, broken)
    models: Any = LlamaForCausalLM
    model = models.from_pretrained(tiny_model)
    model.model.norm.weight.data.fill_(float("nan"))
    model.save_pretrained(broken)
    Registry(runner.data_dir).add("broken", broken)
    job, status, log = runner.run(JobSpec.of(kind=kind, base="broken", steps=2), tmp_path / "log.txt")
    assert status == 1
    assert "is nan at step 1; training has diverged" in log
    assert "smaller learning_rate" in log
    assert job.model_version == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_ends_at_its_last_checkpoint_within_the_kl_budget(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = dr_grpo(kl_budget=0.01, kl_coefficient=0.001, max_passes=4).changed(steps=100)
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    assert "max_passes of 4 gives it 5 steps; the setting allows 100" in log
    metrics = store.query("training_metrics", job_id=job.id)
    measured = metrics.filter(pl.col("name") == KL).sort("step")
    assert measured["value"].max() <= 0.01  # type: ignore[operator]
    assert at(metrics, 1, "actor/kl_loss") == pytest.approx(0, abs=1e-3)
    trained = Registry(runner.data_dir).get(job.model_version)
    assert trained.metadata["steps"] == measured["step"].max() - 1  # type: ignore[operator]
    assert "kl_budget ended it at step" in str(trained.metadata["ended_early"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stopped_job_leaves_no_process(runner: Runner, store: Store, tiny_model: Path, tmp_path: Path) -> None:
    seed_groups(store, tiny_model)
    job = runner.submit(dr_grpo())
    process, mark = runner.start(job.id, tmp_path / "log.txt")
    wait_until(lambda: len(find_processes(None, mark)) > 4, timeout_s=240)
    send_signal(signal.SIGTERM, [found for found in find_processes(None, mark) if found.pid == process.pid])
    assert process.wait(timeout=120) == 128 + signal.SIGTERM
    assert find_processes(None, mark) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_ray_that_is_not_ours_is_used_and_survives(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    with ray_nodes() as nodes:
        with other_trainer(nodes.address):
            job, status, log = runner.run(dr_grpo(ray_address=nodes.address), tmp_path / "log.txt")
        assert status == 0, log
        assert_trained(runner, store, job.id, loss="actor/pg_loss")
        assert "verl computes on cpu" in log
        wait_until(lambda: nodes.left() == NOTHING, timeout_s=60)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_tied_embeddings_stay_tied_and_are_served_untied(
    runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model, groups=1)
    tied = tmp_path / "tied"
    shutil.copytree(tiny_model, tied)
    configs: Any = LlamaConfig
    models: Any = LlamaForCausalLM
    models(configs.from_pretrained(tiny_model, tie_word_embeddings=True)).save_pretrained(tied)
    registry = Registry(runner.data_dir)
    registry.add("tied", tied)
    job, status, log = runner.run(
        JobSpec.of(kind="sft", base="tied", steps=2, learning_rate=1e-2), tmp_path / "log.txt"
    )
    assert status == 0, log
    trained = registry.get(job.model_version)
    assert "lm_head.weight" not in weights(trained.path)
    served = weights(serving_path(trained))
    assert served["lm_head.weight"].equal(weights(trained.path)["model.embed_tokens.weight"].to(torch.bfloat16))
    assert not weights(trained.path)["model.embed_tokens.weight"].equal(
        weights(registry.get("tied@v1").path)["model.embed_tokens.weight"]
    )
