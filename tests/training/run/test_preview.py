"""``spanloop train --dry-run`` and the estimate of memory."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.training.dataset.export import export_dataset
from spanloop.training.models.base_model import read_base_model
from spanloop.training.models.memory_estimate import MemoryFactors, estimate_on_gpus
from spanloop.training.models.model_shape import ModelShape, read_shape
from spanloop.training.models.registry import Registry
from spanloop.training.models.time_estimate import LARGE_CARD
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.run.preview import preview, preview_memory
from spanloop.training.spec.choices import Device

from ..training_running import Runner
from ..training_seeding import seed_groups, seed_old_score


@pytest.fixture
def seeded(runner: Runner, store: Store, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    own = runner.address
    url = f"{own.scheme}://{own.user}:{own.password}@{own.host}:{own.port}/{own.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    seed_groups(store, tiny_model)
    return runner


def test_a_preview_counts_what_an_export_would_take(
    seeded: Runner, store: Store, connection: Connection, tmp_path: Path
) -> None:
    spec = JobSpec.of(kind="dr_grpo", base="tiny", steps=6, batch_groups=3)
    result = preview(seeded.data_dir, spec)
    assert connection.query("SELECT count() FROM pinned_revisions", doing="looking").item() == 0
    version = Registry(seeded.data_dir).get("tiny")
    base = read_base_model(version.reference, version.path)
    manifest = export_dataset(
        store, spec, base, tokenizer_of={base.reference: base.tokenizer}.get, job_id="j", folder=tmp_path
    )
    assert (result.rows.accepted, result.rows.rejected) == (manifest.rows.accepted, manifest.rows.rejected)
    assert (result.episodes.accepted, result.groups.accepted) == (manifest.episodes.accepted, manifest.groups.accepted)
    assert (result.batch_size, result.steps, result.passes) == (3, 5, 5 * 3 / 4)
    # each row's mask leaves three tokens of a tool's output out
    assert result.response_tokens - result.trained_tokens == 3 * result.rows.accepted


def test_a_dry_run_prints_the_preview_and_queues_nothing(seeded: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    arguments = ["train", "tiny", "--data-dir", str(seeded.data_dir.path), "--dry-run", "--task-prefix"]
    completed = CliRunner().invoke(command_tree.app, [*arguments, "task-"])
    assert completed.exit_code == 0, completed.output
    lines = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert "dr_grpo from tiny@v1" in lines[0]
    assert "rows 24 of 30 accepted (rejected: reward_constant 6)" in lines
    assert "steps 4 of 4 groups: 4.00 passes over the data (max_passes of 4 leaves 6 out)" in lines
    assert any(line.startswith("memory about 2.") for line in lines)
    assert "device CPU, as this host has no GPU" in lines
    assert "auto 2,048 tokens in a pass on the CPU" in lines
    assert not any(line.startswith(("on each GPU", "time")) for line in lines), "this host has no GPU"
    completed = CliRunner().invoke(command_tree.app, [*arguments, "task-", "--preset", "gpu"])
    named = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert any(line.startswith("on each GPU about") for line in named)
    assert "auto 32,768 tokens in a pass on H100 with 80 GB free" in named
    assert "time about 0.2 s a step, 0.00 h on H100 (measured on it: forward and backward of 1.5B)" in named
    completed = CliRunner().invoke(
        command_tree.app, [*arguments, "task-", "--coreset", "diversity", "--coreset-share", "0.5"]
    )
    assert "coreset kept 2 of 4 groups (diversity: bigrams of" in " ".join(completed.stdout.split())
    assert not any(line.startswith("preset") for line in lines)
    completed = CliRunner().invoke(command_tree.app, [*arguments, "nothing-"])
    assert "rows 0 of 0 accepted" in " ".join(completed.stdout.split())
    assert JobApi(seeded.data_dir).list() == ()


def test_a_dry_run_names_the_parameters_that_constrained_rows(seeded: Runner, store: Store, tiny_model: Path) -> None:
    seed_groups(store, tiny_model, groups=1, prefix="strict", sampling={"strict_tools": '["price"]', "seed": "1"})
    arguments = ["train", "tiny", "--data-dir", str(seeded.data_dir.path), "--dry-run", "--task-prefix", ""]
    completed = CliRunner().invoke(command_tree.app, arguments)
    lines = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert "rows 24 of 42 accepted (rejected: reward_constant 6, truncated_sampling 12)" in lines
    assert "constrained by strict_tools 12" in lines
    sft = CliRunner().invoke(command_tree.app, [*arguments, "--kind", "sft", "--outcomes", "all"])
    assert "rows 42 of 42 accepted" in " ".join(sft.stdout.split())
    assert "constrained by" not in sft.stdout


def test_a_dry_run_names_an_episode_whose_old_score_is_out_of_range(
    seeded: Runner, store: Store, tiny_model: Path
) -> None:
    seed_old_score(store, tiny_model, 1e308)
    arguments = ["train", "tiny", "--data-dir", str(seeded.data_dir.path), "--dry-run", "--task-prefix", "task-"]
    completed = CliRunner().invoke(command_tree.app, arguments)
    assert completed.exit_code == 0, completed.output
    text = " ".join(completed.stdout.split())
    assert "reward_out_of_range 1" in text
    assert "out of range episode task-0-old: expected a finite number between -1e12 and 1e12" in text


def test_the_estimates_are_of_the_devices_that_a_job_may_train_on() -> None:
    shape = ModelShape(parameters=1000, layers=2, hidden=8, key_value=4, intermediate=16, vocabulary=32)
    on_gpu = preview_memory(JobSpec.of(base="m"), shape, 10, LARGE_CARD)
    assert (on_gpu.auto_tokens, on_gpu.cpu) == (32_768, None)
    assert on_gpu.gpus == estimate_on_gpus(shape, MemoryFactors(), micro_batch_tokens=32_768)
    without = preview_memory(JobSpec.of(base="m"), shape, 3000, None)
    assert (without.cpu_tokens, without.gpus) == (3000, None)
    assert preview_memory(JobSpec.of(base="m", device=Device.CPU), shape, 3000, None) == without
    chosen = preview_memory(JobSpec.of(base="m", device=Device.CUDA, micro_batch_tokens=64), shape, 100, None)
    assert chosen.cpu is None
    assert chosen.gpus == estimate_on_gpus(shape, MemoryFactors(), micro_batch_tokens=100)
    cluster = preview_memory(JobSpec.of(base="m", ray_address="auto"), shape, 10, None)
    assert None not in (cluster.cpu, cluster.gpus), "its machines are not known here"


def test_a_shape_counts_the_stored_weights(tiny_model: Path) -> None:
    shape = read_shape(tiny_model)
    layer = 2 * 64 * 64 + 2 * 64 * shape.key_value + 3 * 64 * shape.intermediate + 2 * 64
    assert shape.parameters == 2 * layer + 2 * shape.vocabulary * 64 + 64
