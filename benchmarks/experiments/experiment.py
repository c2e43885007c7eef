"""Stages of an experiment with an example agent: serve a model, run attempts, train, evaluate.

Invariant: a finished stage is not run again, so an experiment that was stopped continues where it was.
``benchmarks/learning.py`` and ``benchmarks/examples.py`` are experiments.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spanloop.cli.console import err
from spanloop.demo.stages import StageDisplay
from spanloop.evaluation.results import evaluate
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings import load_configuration
from spanloop.pipeline import run as convert
from spanloop.runtime import service_health
from spanloop.runtime.command_line import command_line
from spanloop.runtime.job_progress import await_job, last_metrics
from spanloop.store import connect
from spanloop.training.dataset.trained_tasks import trained_tasks
from spanloop.training.jobs.states import JobState
from spanloop.training.models.fetching import fetch_model
from spanloop.training.models.files.check import require_model
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.deploy import deploy
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.promotion.promote import Actions, promote
from spanloop.training.run.job_api import JobApi

from .agent_runner import AgentRun, ExampleAgent, run_agent, write_tasks
from .finished_stages import FinishedStages

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir
    from spanloop.training.run.job_api import Job, JobSpec

TEST_PREFIX: Final = "test/"
TRAIN_PREFIX: Final = "train/"


class Experiment:
    """The stages on running services.

    Args:
        data_dir: The data directory of the services.
        finished: The stages that are not run again.
        stages: Displays the running stage.
        agent: The agent that attempts the tasks.
        seed: Seed of tasks and intervals. Sampling is not seeded, as in production.
    """

    def __init__(
        self, data_dir: "DataDir", finished: FinishedStages, stages: StageDisplay, agent: ExampleAgent, *, seed: int
    ) -> None:
        self.agent: Final = agent
        self._data_dir = data_dir
        self._finished = finished
        self._stages = stages
        self._seed = seed
        self._folder = data_dir.path / "demo"

    @property
    def tasks_folder(self) -> Path:
        """The folder with the task files and the agent's data."""
        return self._folder

    def add_model(self, source: str) -> str:
        """Fetch, check and register the model; return its version.

        Raises:
            SpanloopError: There is no such model, or it cannot be trained.
        """

        def add() -> dict[str, Any]:

            folder = fetch_model(source, self._folder / "model", self._stages.progress)
            for warning in require_model(source, folder):
                self._stages.note(warning.what)
            name, registry = self.agent.name, Registry(self._data_dir)
            # A kill between adding and recording must not create a second version.
            version = next(iter(registry.list(name)), None) or registry.add(name, folder, metadata={"source": source})
            self._stages.note(f"{version.size_bytes / 1e6:.0f} MB as {version.reference}")
            return {"version": version.reference}

        return str(self._stage("model", f"the model {source} is fetched, checked and added", add)["version"])

    def make_tasks(self, *, train: int | None = None, test: int | None = None) -> None:
        """Generate the tasks; None takes the default number of the agent's ``tasks.py``."""

        def make() -> dict[str, Any]:
            write_tasks(self.agent, self._folder, seed=self._seed, train=train, test=test)
            return {}

        self._stage("tasks", "tasks with known answers are generated", make)

    def evaluate(self, version: str, other_tasks: Path | None = None) -> str:
        """Let ``version`` attempt the test tasks; return the id of the stored evaluation, ``AGENT:VERSION``.

        Args:
            version: It is served.
            other_tasks: A task file to attempt instead. The ids of its tasks start with its stem, and the evaluation's
                id is ``AGENT-STEM:VERSION``.
        """
        name = f"{self.agent.name}-{other_tasks.stem}" if other_tasks else self.agent.name
        task_prefix = f"{other_tasks.stem}/" if other_tasks else TEST_PREFIX

        def run_and_evaluate() -> dict[str, Any]:
            since = datetime.now(UTC)
            self._serve(version)
            self._run_agent(AgentRun(str(other_tasks or self.agent.test)))

            with connect(self._data_dir) as store:
                evaluation = evaluate(
                    store,
                    name=name,
                    model=version,
                    trained=trained_tasks(store, self._data_dir, version),
                    task_prefix=task_prefix,
                    since=since,
                    seed=self._seed,
                )
            self._stages.note(f"success {evaluation.success.text('.0f', scale=100, unit=' %')}")
            return {"evaluation": evaluation.evaluation_id}

        stage = f"evaluate {version}" + (f" {other_tasks}" if other_tasks else "")
        title = f"{version} attempts {other_tasks or 'the test tasks'}"
        return str(self._stage(stage, title, run_and_evaluate)["evaluation"])

    def decide(self, candidate: str) -> str:
        """Let the promotion rule decide about an evaluated version; return the champion, which is served.

        Raises:
            SpanloopError: It has not been evaluated, or the champion cannot be served.
        """

        def ask() -> dict[str, Any]:

            # A kill between deciding and recording must not ask again: the champion is no candidate.
            decision = next(iter(Decisions(self._data_dir).list(candidate=candidate)), None)
            if decision is None:
                rule = load_configuration(self._data_dir.path).promotion
                with connect(self._data_dir) as store:
                    decision = promote(store, candidate, rule, Actions(self._data_dir), evaluation=self.agent.name)
            champion = candidate if decision.outcome is PromotionOutcome.PROMOTED else decision.champion
            self._serve(champion)
            self._stages.note(f"{decision.outcome}: {decision.evidence.reason}")
            return {"champion": champion}

        return str(self._stage(f"decide {candidate}", f"the rule decides about {candidate}", ask)["champion"])

    def collect(self, name: str, title: str, run: AgentRun, *, version: str = "") -> datetime:
        """Run attempts at the training tasks and convert their spans; return the time before the first one.

        Args:
            name: Of the stage.
            title: Of the stage, for the display.
            run: How the agent is run.
            version: The gateway serves this version meanwhile; empty when the run needs no gateway.
        """

        def attempt() -> dict[str, Any]:
            since = datetime.now(UTC)
            if version:
                self._serve(version)
            self._run_agent(run)
            return {"since": since.isoformat()}

        return datetime.fromisoformat(self._stage(name, title, attempt)["since"])

    def train(self, name: str, title: str, spec: "JobSpec") -> str:
        """Submit the job and wait for it; return the new version.

        Raises:
            JobError: The job failed.
        """
        return str(self._stage(name, title, lambda: self._train(spec))["version"])

    def _train(self, spec: "JobSpec") -> dict[str, Any]:

        api = JobApi(self._data_dir)
        # An experiment that was stopped has submitted the job already; the scheduler continues it.
        unusable = {JobState.FAILED, JobState.CANCELLED}
        submitted = next((job for job in api.list() if job.spec == spec and job.state not in unusable), None)
        shown_step, metrics = 0, ""

        def show(job: "Job") -> None:
            nonlocal shown_step, metrics
            if job.step != shown_step:
                shown_step, metrics = job.step, last_metrics(self._data_dir, job.id)
            self._stages.progress(f"{job.state}, step {job.step} of {job.steps_total or '?'}  {metrics}")

        job = await_job(api, self._data_dir, (submitted or api.submit(spec)).id, show)
        self._stages.note(f"{job.model_version} after {job.steps_total} steps")
        return {"version": job.model_version, "job": job.id}

    def _serve(self, version: str) -> None:

        gateway = service_health.gateway_health(self._data_dir)
        if gateway is None or gateway.model != version or gateway.state != "serving":
            self._stages.progress("vLLM starts")
            deploy(self._data_dir, version)

    def _run_agent(self, run: AgentRun) -> None:
        """Run the agent on the tasks, and convert its spans."""

        def show(done: int, total: int, mean: float) -> None:
            self._stages.progress(f"{done} of {total} attempts, mean reward {mean:.2f}")

        run_agent(self._data_dir, self.agent, self._folder, run, on_progress=show)
        with connect(self._data_dir) as store:
            report = convert(store)
        self._stages.note(f"{report.spans} spans, {report.episodes} episodes")

    def _stage(self, name: str, title: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        stored_result = self._finished.result(name)
        if stored_result is not None:
            err.print(f"[green]✓[/green] {title} [dim](done before)[/dim]")
            return stored_result
        started_s = time.monotonic()
        with self._explaining_how_to_continue(), self._stages.stage(title):
            try:
                result = work()
            except BaseException:
                with suppress(OSError):  # the error matters more than the time
                    self._finished.interrupt(name, time.monotonic() - started_s)
                raise
            self._finished.finish(name, result, time.monotonic() - started_s)
        return result

    @contextmanager
    def _explaining_how_to_continue(self) -> Generator[None]:
        try:
            yield
        except KeyboardInterrupt:
            err.print("stopped; finished stages are stored, and the same command continues")
            raise
        except SpanloopError as error:
            if not error.next_step:
                error.next_step = f"Read {command_line('jobs list', self._data_dir)}; the same command continues."
            raise
