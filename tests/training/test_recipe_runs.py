"""Each recipe through Ray: from stored rows to a registered version, with the tiny model."""

from pathlib import Path

import polars as pl
import pytest

from spanloop.semconv.enums import JobKind
from spanloop.store import Store
from spanloop.training.job_spec import JobSpec

from .test_run_job import assert_trained, at
from .training_running import Runner
from .training_seeding import seed_groups

POLICY_GRADIENTS = [kind for kind in JobKind if kind.is_policy_gradient]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", POLICY_GRADIENTS)
def test_a_recipe_trains_stored_rows(
    kind: JobKind, runner: Runner, store: Store, tiny_model: Path, tmp_path: Path
) -> None:
    seed_groups(store, tiny_model)
    spec = JobSpec(kind=kind, base="tiny", steps=3, learning_rate=1e-3, batch_groups=3, kl_budget=10)
    job, status, log = runner.run(spec, tmp_path / "log.txt")
    assert status == 0, log
    metrics = assert_trained(runner, store, job.id, loss="actor/pg_loss")
    assert at(metrics, 1, "actor/grad_norm") > 0

