"""Lineage: from a version to the spans that trained it, and from a span to the versions that learned from it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.models.base_model import read_base_model
from spanloop.training.models.lineage import (
    LearnedVersion,
    spans_of_version,
    trained_episodes,
    versions_of_span,
    with_lineage,
)
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.job_spec import JobSpec

from ..training_seeding import insert, transition_row


def trained(data_dir: DataDir, base: ModelVersion, *, steps: int) -> ModelVersion:
    """A version that a job made from ``base``."""
    job = JobApi(data_dir).submit(JobSpec.of(base=base.reference))
    return Registry(data_dir).add(base.name, base.path, parent=base.reference, job_id=job.id, metadata={"steps": steps})


def sample(
    job_id: str | None, step: int, episode: str, trained_steps: list[int], attempt: int = 1
) -> dict[str, object]:
    return {
        "job_id": job_id, "attempt": attempt, "step": step, "sample": 0, "kind": "grpo", "episode_id": episode,
        "revision": 7, "trajectory_id": f"{episode}/0", "row_number": 0, "trained_steps": trained_steps,
        "group_id": "g", "policy_version": "tiny@v1", "tokens": 3, "weight": 1.0, "advantage": 0.5, "loss": 0.1,
    }  # fmt: skip


@pytest.fixture
def versions(data_dir: DataDir, store: Store, tiny_model: Path) -> list[ModelVersion]:
    """v1 is the base, v2 trained on step 0 of episode a and its step 1 later, v3 on b from v2, other on nothing."""
    base = Registry(data_dir).add("tiny", tiny_model)
    second = trained(data_dir, base, steps=2)
    third = trained(data_dir, second, steps=1)
    other = trained(data_dir, base, steps=1)
    calls = [transition_row(episode, "g", step, {}) for episode in ("a", "b") for step in (0, 1)]
    for call in calls:
        call |= {"trace_id": f"trace-{call['episode_id']}", "span_id": f"span-{call['step']}"}
    insert(store, "transitions", calls)
    rows = [
        sample(second.job_id, 1, "a", [0]),
        # repeated by the second attempt, with another row
        sample(second.job_id, 2, "b", [0], attempt=1),
        sample(second.job_id, 2, "a", [0], attempt=2),
        # after the checkpoint that became the version
        sample(second.job_id, 3, "a", [1], attempt=2),
        # of an earlier converter: all calls of the episode
        sample(third.job_id, 1, "b", []),
    ]
    schema = [name for name in store.schema("training_samples") if name != "recorded_at"]
    insert_rows = [{name: row.get(name) for name in schema} for row in rows]
    insert(store, "training_samples", insert_rows)
    return [base, second, third, other]


def test_a_base_knows_the_episodes_that_it_and_its_ancestors_learned_from(
    versions: list[ModelVersion], data_dir: DataDir, store: Store
) -> None:
    registry = Registry(data_dir)

    def learned(version: ModelVersion) -> tuple[tuple[str, ...], set[str]]:
        base = with_lineage(read_base_model(version.reference, version.path), registry)
        return base.lineage, set(trained_episodes(store, base.trainings))

    assert learned(versions[0]) == (("tiny@v1",), set())
    assert learned(versions[1]) == (("tiny@v2", "tiny@v1"), {"a"})
    assert learned(versions[2]) == (("tiny@v3", "tiny@v2", "tiny@v1"), {"a", "b"})
    assert learned(versions[3]) == (("tiny@v4", "tiny@v1"), set())


def test_a_version_names_the_spans_of_its_job_and_of_its_ancestors(
    versions: list[ModelVersion], data_dir: DataDir, store: Store
) -> None:
    registry = Registry(data_dir)
    trained = spans_of_version(store, registry, versions[2].reference, max_rows=10)
    assert trained.select(
        "version", "trace_id", "span_id", "episode_step", "times", "first_step", "last_step"
    ).rows() == [
        ("tiny@v2", "trace-a", "span-0", 0, 2, 1, 2),
        ("tiny@v3", "trace-b", "span-0", 0, 1, 1, 1),
        ("tiny@v3", "trace-b", "span-1", 1, 1, 1, 1),
    ]
    assert trained["spans"].to_list() == [3, 3, 3]
    assert spans_of_version(store, registry, "tiny@v1", max_rows=10).is_empty()
    assert spans_of_version(store, registry, versions[2].reference, max_rows=1).height == 1


def test_a_span_names_the_versions_that_learned_from_it(
    versions: list[ModelVersion], data_dir: DataDir, store: Store
) -> None:
    registry = Registry(data_dir)
    _, second, third, _ = versions
    assert versions_of_span(store, registry, "trace-a") == [
        LearnedVersion("tiny@v2", str(second.job_id), "tiny@v2", 1, 2),
        LearnedVersion("tiny@v3", str(second.job_id), "tiny@v2", 1, 2),
    ]
    # trained on after the version's weights were saved
    assert versions_of_span(store, registry, "trace-a", "span-1") == []
    assert [each.reference for each in versions_of_span(store, registry, "trace-b", "span-1")] == [third.reference]


def test_the_commands_print_both_ways(
    versions: list[ModelVersion], data_dir: DataDir, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = f"{address.user}:{address.password}@{address.host}:{address.port}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, f"{address.scheme}://{login}/{address.database}")
    runner = CliRunner()
    lineage = runner.invoke(app, ["models", "lineage", versions[2].reference, "--data-dir", str(data_dir.path)])
    assert lineage.exit_code == 0, lineage.output
    assert "trace-a" in lineage.stdout
    assert "3 model calls" in lineage.output
    learned = runner.invoke(app, ["spans", "versions", "trace-a/span-0", "--data-dir", str(data_dir.path)])
    assert learned.exit_code == 0, learned.output
    assert "tiny@v3" in learned.stdout
    unknown = runner.invoke(app, ["spans", "versions", "nowhere", "--data-dir", str(data_dir.path)])
    assert unknown.exit_code == 0
    assert "no version learned from" in unknown.output
