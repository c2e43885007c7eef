"""What becomes of a job's version: the task runner evaluates it, the rule decides, the gateway serves what won."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.job_queue import lease_next_job
from spanloop.training.jobs.leases import OtherLease, take_over
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.promotion.serving_pause import ServingPause
from spanloop.training.run.deployment_of_job import TrainedJob, deploy_as_asked
from spanloop.training.run.job_api import JobApi, JobLeaseLostError, JobSpec
from spanloop.training.run.monitor.job_trace import JobTrace

from ..gateway_stand_in import GatewayStandIn, gateway_stand_in
from ..training_running import url_of

TASKS = 25
AGENT = """
import os

def solve(task):
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""
Finish = Callable[..., list[str]]


@pytest.fixture
def trained(
    data_dir: DataDir, registry: Registry, model_folder: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., TrainedJob]:
    """A job under its lease that has registered ``m@v5``, trained from ``m@v4``; ``m@v4`` is served."""
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(address))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("SPANLOOP_EXIT_TIMEOUT_S", "0.1")
    monkeypatch.chdir(data_dir.path)

    def make(**settings: bool) -> TrainedJob:
        registry.record_deployment("m@v4")
        api, now = JobApi(data_dir), utc_now()
        api.submit(JobSpec.model_validate({"kind": "sft", "base": "m", **settings}))
        with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
            lease = lease_next_job(session, owner="test", now=now, until=now + timedelta(hours=1))
        assert lease is not None
        version = registry.add("m", model_folder, parent="m@v4", job_id=lease.job_id, token=lease.token)
        return TrainedJob(data_dir, api.get(lease.job_id), lease.token, version)

    return make


def finish(trained: TrainedJob) -> list[str]:
    """Return the job's log."""
    log: list[str] = []
    pause = ServingPause(trained.data_dir.path, trained.job.id, log.append)
    deploy_as_asked(trained, JobTrace(trained.job.id, 1, {}), pause, log.append)
    return log


def configure(data_dir: DataDir, *solvers: str, extra: str = "") -> None:
    """Tasks that the given versions solve."""
    rows = [{"id": f"t{number}", "number": number, "answer": "yes", "solvers": solvers} for number in range(TASKS)]
    (data_dir.path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (data_dir.path / "solver.py").write_text(AGENT)
    (data_dir.path / "spanloop.toml").write_text(
        f'[evaluation]\ntasks = "tasks.jsonl"\nagent = "solver:solve"\ngrader = "exact"\ncwd = "{data_dir.path}"\n'
        f"parallel = 1\n[promotion]\nmax_tasks = {TASKS}\n{extra}"
    )


def served(gateway: GatewayStandIn) -> list[str]:
    return [f"{body['name']}@{body['version']}" for path, body in gateway.asked if path == "deploy"]


def test_a_job_lets_both_versions_attempt_the_tasks_and_serves_the_better_one(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    job = trained(deploy=True)
    configure(data_dir, "m@v5")
    log = finish(job)
    assert JobApi(data_dir).get(job.job.id).state is JobState.EVALUATING
    (decision,) = Decisions(data_dir).list()
    assert (decision.outcome, decision.candidate, decision.champion) == (PromotionOutcome.PROMOTED, "m@v5", "m@v4")
    assert decision.job_id == job.job.id
    assert decision.evidence.measured is not None
    assert (decision.evidence.measured.count, decision.evidence.measured.wins) == (TASKS, TASKS)
    assert log[-1] == f"m@v5 promoted: {decision.evidence.reason}"
    assert (served(gateway)[:2], gateway.served) == (["m@v4", "m@v5"], "m@v5")
    assert store.query("attempt_runs", run_id="")["attempts"].to_list() == [TASKS, TASKS]

    # the job was killed after its decision and runs again
    gateway.asked.clear()
    finish(job)
    assert (served(gateway), len(Decisions(data_dir).list())) == ([], 1)


@pytest.mark.slow
def test_what_is_not_better_is_not_served_and_the_champions_attempts_are_used_again(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    configure(data_dir, "m@v4", "m@v5")
    finish(trained(deploy=True))
    assert Decisions(data_dir).list()[0].outcome is PromotionOutcome.KEPT
    assert gateway.served == "m@v4"
    assert {alias.alias: alias.version for alias in Aliases(data_dir).list("m")} == {"champion": "v4"}
    gateway.asked.clear()
    finish(trained(deploy=True))  # m@v6
    assert served(gateway) == ["m@v6", "m@v4"]
    assert sorted(store.query("attempt_runs", run_id="")["model"].to_list()) == ["m@v4", "m@v5", "m@v6"]


def test_a_model_that_was_deployed_beside_it_is_neither_champion_nor_served_in_its_place(
    data_dir: DataDir, registry: Registry, model_folder: Path, trained: Callable[..., TrainedJob]
) -> None:
    job = trained(deploy=True)
    other = registry.add("other", model_folder).reference
    registry.record_deployment(other)
    configure(data_dir, "m@v4", "m@v5")
    with gateway_stand_in(data_dir) as gateway:
        gateway.served, gateway.beside = "m@v4", [other]
        finish(job)
    (decision,) = Decisions(data_dir).list()
    assert (decision.champion, served(gateway)) == ("m@v4", ["m@v4", "m@v5", "m@v4"])


def test_without_tasks_and_evaluations_the_version_waits_as_the_candidate(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    assert store.database
    log = finish(trained(deploy=True))
    (decision,) = Decisions(data_dir).list()
    assert decision.outcome is PromotionOutcome.UNDECIDED
    assert "no evaluation with the same name" in decision.evidence.reason
    assert "spanloop run" in log[-1]
    assert served(gateway) == []
    assert {alias.alias: alias.version for alias in Aliases(data_dir).list("m")} == {
        "champion": "v4",
        "candidate": "v5",
    }


def test_an_evaluation_that_cannot_be_made_fails_the_job_and_serves_the_champion_again(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    assert store.database
    job = trained(deploy=True)
    configure(data_dir, "m@v5")
    (data_dir.path / "solver.py").write_text("no Python")
    with pytest.raises(JobError, match=r"trained and registered m@v5, but could not evaluate it") as caught:
        finish(job)
    assert f"spanloop jobs retry {job.job.id}" in caught.value.next_step
    assert gateway.served in {"", "m@v4"}
    assert Decisions(data_dir).list() == ()


def test_deploy_always_asks_no_rule_and_moves_the_champion(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    assert store.database
    job = trained(deploy_always=True)
    for _ in range(2):
        finish(job)
    (decision,) = Decisions(data_dir).list()
    assert (decision.outcome, decision.rule) == (PromotionOutcome.PROMOTED, None)
    assert "--deploy-always" in decision.evidence.reason
    assert served(gateway) == ["m@v5"]
    assert gateway.asked[0][1]["holder"] == f"job {job.job.id}"
    assert {alias.alias: alias.version for alias in Aliases(data_dir).list("m")} == {"champion": "v5"}


def test_a_job_that_lost_its_lease_decides_nothing(
    store: Store, data_dir: DataDir, trained: Callable[..., TrainedJob], gateway: GatewayStandIn
) -> None:
    assert store.database
    jobs = [trained(deploy=True), trained(deploy_always=True)]
    for job in jobs:
        with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
            taken = take_over(session, OtherLease(job.job.id, job.token, "", "", None), owner="b", until=utc_now())
        assert taken is not None
        with pytest.raises(JobLeaseLostError):
            finish(job)
    assert (Decisions(data_dir).list(), served(gateway)) == ((), [])
