"""``spanloop train --dry-run`` and the estimate of memory."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli import app as command_tree
from spanloop.semconv.enums import JobKind
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.training.base_model import read_base_model
from spanloop.training.dataset import export_dataset
from spanloop.training.jobs import JobApi, JobSpec
from spanloop.training.memory_estimate import ModelShape, estimate_memory, read_shape
from spanloop.training.preview import preview
from spanloop.training.registry import Registry

from .training_running import Runner
from .training_seeding import seed_groups

SMOLLM2_135M = ModelShape(
    parameters=134_515_008, layers=30, hidden=576, key_value=192, intermediate=1536, vocabulary=49_152
)


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
    spec = JobSpec(kind=JobKind.DR_GRPO, base="tiny", steps=6, batch_groups=3)
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


def test_a_dry_run_prints_the_preview_and_queues_nothing(seeded: Runner) -> None:
    arguments = ["train", "tiny", "--data-dir", str(seeded.data_dir.path), "--dry-run", "--task-prefix"]
    completed = CliRunner().invoke(command_tree.app, [*arguments, "task-"])
    assert completed.exit_code == 0, completed.output
    lines = [" ".join(line.split()) for line in completed.stdout.splitlines()]
    assert "dr_grpo from tiny@v1" in lines[0]
    assert "rows 24 of 30 accepted (rejected: reward_constant 6)" in lines
    assert "steps 4 of 4 groups: 4.00 passes over the data (max_passes of 4 leaves 6 out)" in lines
    assert any(line.startswith("memory about 2.") for line in lines)
    assert "preset any: sets nothing" in lines
    completed = CliRunner().invoke(command_tree.app, [*arguments, "nothing-"])
    assert "rows 0 of 0 accepted" in " ".join(completed.stdout.split())
    assert JobApi(seeded.data_dir).list() == ()


def test_an_estimate_is_near_what_was_measured() -> None:
    """docs/design/measurements.md: 7.0 GB at the peak, 1.3 MB for each token of a micro-batch."""
    estimate = estimate_memory(SMOLLM2_135M, micro_batch_tokens=2048, bfloat16=True)
    assert estimate.total / 7.0e9 == pytest.approx(1, abs=0.15)
    assert estimate.activations / 2048 == pytest.approx(1.3e6, rel=0.2)


def test_an_estimate_follows_its_formula() -> None:
    shape = ModelShape(parameters=1000, layers=2, hidden=8, key_value=4, intermediate=16, vocabulary=32)
    estimate = estimate_memory(shape, micro_batch_tokens=10, bfloat16=False)
    assert estimate[:4] == (4000, 4000, 8000, 4000)
    layer = 16 * 8 + 4 * (7 * 8 + 2 * 4 + 4 * 16)
    assert estimate.activations == 10 * (2 * layer + 2 * 4 * 32)
    smaller = estimate_memory(shape, micro_batch_tokens=10, bfloat16=True, recomputes=True)
    assert smaller.compute_copy == 2000
    assert smaller.activations < estimate.activations
    compared = estimate_memory(shape, micro_batch_tokens=10, bfloat16=True, has_reference=True)
    assert (estimate.reference, compared.reference) == (0, 6000)
    two = estimate_memory(shape, micro_batch_tokens=10, bfloat16=False, ranks=2)
    assert two[:3] == estimate[:3]
    assert (two.compute_copy, two.activations) == (8000, 2 * estimate.activations)
    valued = estimate_memory(shape, micro_batch_tokens=10, bfloat16=True, has_critic=True)
    assert (estimate.critic, valued.critic) == (0, 18_000)


def test_a_shape_counts_the_stored_weights(tiny_model: Path) -> None:
    shape = read_shape(tiny_model)
    layer = 2 * 64 * 64 + 2 * 64 * shape.key_value + 3 * 64 * shape.intermediate + 2 * 64
    assert shape.parameters == 2 * layer + 2 * shape.vocabulary * 64 + 64
