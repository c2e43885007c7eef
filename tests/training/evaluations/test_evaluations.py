"""Evaluations as jobs: what they do, what stands in a plan, and what is refused."""

import json
import time
from pathlib import Path

import pytest

from spanloop.evaluation.results import load_evaluations
from spanloop.foundation.errors import ConfigurationError, JobError, NotRunningError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import RunnerSettings
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.attempt_pool.offers import Offers
from spanloop.training.attempt_pool.worker_process import AttemptWorker
from spanloop.training.evaluations.evaluation_api import EvaluationApi
from spanloop.training.evaluations.plan import fetch_plan
from spanloop.training.evaluations.sources import evaluation_files
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.processes.job_runner import JobRunner
from spanloop.training.jobs.queue_api import QueueApi
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec, LoopFile, ScheduleSettings
from spanloop.training.spec.stored_spec import EvaluationSpec, parse_any_spec

from ..gateway_stand_in import GatewayStandIn
from ..training_running import url_of

TASKS = 3
AGENT = """
import os

def solve(task):
    return task["answer"] if os.environ["OPENAI_MODEL"] in task["solvers"] else "no idea"
"""
BOTH = EvaluationSpec(versions=("m@v3", "m@v4"))


@pytest.fixture(autouse=True)
def _environment(
    registry: Registry, store: Store, address: Address, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.get("m@v4")
    assert store.database == address.database
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(address))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("SPANLOOP_EXIT_TIMEOUT_S", "0.1")
    monkeypatch.chdir(data_dir.path)


def write_agent(folder: Path, *solvers: str) -> str:
    """Write tasks that these versions solve; return the settings of their evaluation."""
    rows = [{"id": f"t{number}", "number": number, "answer": "yes", "solvers": solvers} for number in range(TASKS)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"number": 9}]))
    (folder / "solver.py").write_text(AGENT)
    return 'tasks = "tasks.jsonl"\nagent = "solver:solve"\ngrader = "exact"\nparallel = 1\n'


def configure(data_dir: DataDir, *solvers: str, pool: bool = False) -> None:
    settings = write_agent(data_dir.path, *solvers)
    of_pool = "pool = true\n" if pool else ""
    (data_dir.path / "spanloop.toml").write_text(f'[evaluation]\n{settings}{of_pool}cwd = "{data_dir.path}"\n')


def run_queued(data_dir: DataDir, *, attempt_slots: int = 0) -> None:
    """Let a job runner run what is queued, and make attempts of the pool, in processes of its own."""
    runner = JobRunner(data_dir, parse_any_spec, settings=RunnerSettings(grace_s=0.1))
    attempts = AttemptWorker(data_dir, Offers(runner.database), slots=attempt_slots, lease_s=30, grace_s=5)
    try:
        give_up_at = time.monotonic() + 240
        while not QueueApi(data_dir, parse_any_spec).list()[0].is_finished:
            assert time.monotonic() < give_up_at
            runner.tick()
            attempts.tick()
            time.sleep(0.1)
    finally:
        attempts.close()
        runner.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("attempt_slots", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_versions_attempt_the_tasks_one_after_another_and_the_gateway_serves_what_it_did_before(
    attempt_slots: int, data_dir: DataDir, store: Store, gateway: GatewayStandIn
) -> None:
    """With slots for attempts, by a runner of the pool."""
    configure(data_dir, "m@v3", pool=bool(attempt_slots))
    api = EvaluationApi(data_dir)
    job = api.submit(BOTH)
    assert job.id.startswith("evaluate-")
    run_queued(data_dir, attempt_slots=attempt_slots)
    job = api.get(job.id)
    log = api.log(job.id)
    assert job.state is JobState.SUCCEEDED, job.error
    assert (job.step, job.steps_total) == (2 * TASKS, 2 * TASKS)
    assert "m@v3: 3 of 3 attempts, 3 succeeded" in log
    assert [body["version"] for path, body in gateway.asked if path == "deploy"] == ["v3", "v4"]
    assert gateway.served == "m@v4"
    evaluations = {each.model: each for each in load_evaluations(store)}
    assert {model: each.success.value for model, each in evaluations.items()} == {"m@v3": 1.0, "m@v4": 0.0}
    assert len({each.name for each in evaluations.values()}) == 1
    assert JobApi(data_dir).list() == ()
    assert [each.id for each in QueueApi(data_dir, parse_any_spec).list()] == [job.id]


@pytest.mark.usefixtures("gateway")
def test_a_plan_says_what_would_be_attempted_and_stores_nothing(data_dir: DataDir, store: Store) -> None:
    configure(data_dir)
    plan = fetch_plan(data_dir, BOTH)
    assert (plan.tasks, plan.rejected, plan.attempts, plan.agent, plan.grader) == (TASKS, 1, 1, "solver:solve", "exact")
    assert plan.rejections == ("tasks.jsonl:4: field 'answer' is missing; the record has: number",)
    assert plan.attempted == ()
    assert store.query("attempt_runs", run_id="").is_empty()
    assert EvaluationApi(data_dir).list() == ()


def test_the_file_of_a_scheduled_loop_says_how_its_model_is_evaluated(data_dir: DataDir, tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    settings = write_agent(folder)
    file = folder / "app.toml"
    file.write_text(f'[model]\nname = "m"\n[run]\n{settings}[evaluation]\ntasks = "tasks.jsonl"\n')
    loop = ScheduleSettings(every_minutes=60, loop=LoopFile(path=str(file), model="m"))
    JobApi(data_dir).schedule(JobSpec.of(kind="sft", base="m"), settings=loop)
    assert evaluation_files(data_dir, "m") == (str(file),)
    assert evaluation_files(data_dir, "other") == ()
    plan = fetch_plan(data_dir, EvaluationSpec(versions=("m@v3",), file=str(file)))
    assert (plan.tasks, plan.agent) == (TASKS, "solver:solve")


def test_tasks_or_an_agent_that_cannot_be_found_are_said_before_anything_starts(data_dir: DataDir) -> None:
    (data_dir.path / "spanloop.toml").write_text('[evaluation]\ntasks = "none.jsonl"\nagent = "no-such-command"\n')
    with pytest.raises(ConfigurationError, match=r"none\.jsonl|no-such-command"):
        fetch_plan(data_dir, BOTH)


def refusal(data_dir: DataDir, spec: EvaluationSpec = BOTH) -> SpanloopError:
    with pytest.raises(SpanloopError) as refused:
        EvaluationApi(data_dir).submit(spec)
    return refused.value


def test_without_a_file_that_names_the_agent_nothing_is_queued(data_dir: DataDir) -> None:
    error = refusal(data_dir)
    assert isinstance(error, ConfigurationError)
    assert error.what == "No file says how the agent attempts tasks."
    assert "[evaluation]" in error.next_step


def test_without_a_gateway_nothing_is_queued(data_dir: DataDir) -> None:
    configure(data_dir)
    error = refusal(data_dir)
    assert isinstance(error, NotRunningError)
    assert "gateway" in error.what


@pytest.mark.usefixtures("gateway")
def test_two_evaluations_of_a_model_at_once_are_refused(data_dir: DataDir) -> None:
    configure(data_dir)
    job = EvaluationApi(data_dir).submit(EvaluationSpec(versions=("m@v2",)))
    error = refusal(data_dir)
    assert isinstance(error, JobError)
    assert error.what == f"{job.id} evaluates m@v2 already (queued)."
    EvaluationApi(data_dir).cancel(job.id)
    assert EvaluationApi(data_dir).submit(BOTH).state is JobState.QUEUED


@pytest.mark.usefixtures("gateway")
def test_a_version_without_weights_is_refused(data_dir: DataDir, registry: Registry) -> None:
    configure(data_dir)
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        registry.mark_pruned(session, registry.get("m@v3"))
    assert refusal(data_dir).what.startswith("The weights of m@v3 were pruned")


def test_a_running_canary_is_named(data_dir: DataDir, gateway: GatewayStandIn) -> None:
    configure(data_dir)
    gateway.canary = {
        "id": "c1", "candidate": "m@v4", "champion": "m@v3", "share": 0.1, "mode": "sessions", "started_s": 0.0,
    }  # fmt: skip
    assert refusal(data_dir).what.startswith("A canary of m@v4 runs")
