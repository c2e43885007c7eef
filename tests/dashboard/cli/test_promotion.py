"""``spanloop promote`` and the commands of ``spanloop models`` about aliases, decisions, rollback, prune and export."""

from pathlib import Path

import pytest

from spanloop.evaluation.results import EvaluationError
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.training.models.registry import Registry

from ...training.evaluation_seeding import RunAttempt, seed_run
from .test_evaluations import episodes, models, run, seeded

__all__ = ["models", "seeded"]


def say(data_dir: DataDir, *arguments: str) -> str:
    return run(data_dir, *arguments)[0]


@pytest.mark.usefixtures("seeded")
def test_a_version_is_evaluated_decided_about_promoted_and_rolled_back(models: DataDir, store: Store) -> None:
    (models.path / "spanloop.toml").write_text(
        "[promotion]\nmin_tasks = 5\n[promotion.guards.crashes]\nat_most = 0.9\n"
    )
    assert say(models, "models", "alias", "m@v1", "champion") == "m@champion is m@v1\n"
    with pytest.raises(EvaluationError, match="no evaluation with the same name"):
        run(models, "promote", "m")
    for model in ("m@champion", "m@v2"):
        run(models, "evaluate", model, "--task-prefix", "test-")
    undecided = say(models, "promote", "m", "--no-deploy")
    assert "m@v2 undecided against m@v1: Success differs by +0.400 on 10 tasks" in undecided
    assert "success 0.700 0.300" in undecided
    assert "better at 5 1 of 10 tasks" in undecided
    assert "crashes at_most 0.9 0.000 0.000 yes" in undecided
    assert "m@v2 candidate" in say(models, "models", "list")

    episodes(store, "m@v1", "-" * 11 + "0" * 20)
    episodes(store, "m@v2", "-" * 11 + "1" * 20)
    for model in ("m@v1", "m@candidate"):
        run(models, "evaluate", model, "--task-prefix", "test-")
    promoted = say(models, "promote", "m@candidate", "--no-deploy")
    assert "m@v2 promoted against m@v1: The candidate is better" in promoted
    assert "from test:m@v2 and test:m@v1; look 2" in promoted
    assert "m@v2 champion" in say(models, "models", "list")

    listed = say(models, "models", "decisions", "m")
    assert listed.index("m@v2 promoted m@v1") < listed.index("m@v2 undecided m@v1")
    assert "better at 25 1 of 31 tasks" in say(models, "models", "decisions", "m@champion")
    assert "the champion stays" in say(models, "models", "rollback", "m", "--by-rule", "--no-deploy")
    assert "m@v2 rolled_back against m@v1: It was rolled back by hand." in say(
        models, "models", "rollback", "m", "--no-deploy"
    )
    assert Registry(models).get("m@champion").reference == "m@v1"


@pytest.mark.usefixtures("seeded")
def test_contradictory_guards_are_refused_before_anything_is_compared(models: DataDir) -> None:
    (models.path / "spanloop.toml").write_text("[promotion.guards.errors]\nat_least = 0.5\nat_most = 0.1\n")
    with pytest.raises(ConfigurationError, match=r"promotion.guards.errors: at_least = 0.5 contradicts at_most = 0.1"):
        run(models, "promote", "m")


@pytest.mark.usefixtures("seeded")
def test_a_run_is_evaluated_under_the_name_of_its_tasks(models: DataDir, store: Store) -> None:
    for model in ("m@v1", "m@v2"):
        run_id = f"run-{model}"
        finished = RunAttempt(run_id, "t0", model, 1.0)
        crashed = RunAttempt(run_id, "t1", model, state="crashed")
        seed_run(store, [finished, crashed, RunAttempt(run_id, "t2", model, state="timed_out")])
    shown, noted = run(models, "evaluate", "--run", "run-m@v2")
    assert "all:m@v2 3 3 33.3 %" in shown
    assert "crashes 0.667" in shown
    assert "failures without a score: crashed 1, timed_out 1" in noted
    with pytest.raises(EvaluationError, match="attempts: run-m@v2 by m@v2"):
        run(models, "evaluate", "m@v1", "--run", "run-m@v2")


@pytest.mark.slow
def test_versions_are_pruned_and_exported(models: DataDir, tmp_path: Path) -> None:
    say(models, "models", "alias", "m@v2", "champion")
    planned, noted = run(models, "models", "prune", "--keep", "1", "--dry-run")
    assert "m@v1 go 0.00 nothing needs it" in planned
    assert "m@v2 stay alias champion" in planned
    assert "would be freed" in noted
    assert "m@v1 gone" in say(models, "models", "prune", "--keep", "1")
    assert "m@v1 pruned" in say(models, "models", "list")
    target = tmp_path / "export"
    shown, noted = run(models, "models", "export", "m@champion", str(target))
    assert shown == f"m@v2 is in {target}\n"
    assert "# m@v2" in (target / "README.md").read_text()
    with pytest.raises(JobError, match="pruned"):
        run(models, "models", "export", "m@v1", str(tmp_path / "other"))
    say(models, "models", "alias", "m", "champion", "--remove")
    with pytest.raises(JobError, match="no alias 'champion'"):
        run(models, "models", "export", "m@champion", str(tmp_path / "other"))
