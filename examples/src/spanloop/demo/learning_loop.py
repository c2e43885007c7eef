"""The learning demo: evaluate a small real model as an agent, before and after training on its own traces.

Fetch the model → serve it → evaluate it on test tasks → attempt training tasks → SFT on the successful attempts →
evaluate → attempt training tasks → Dr. GRPO on all attempts → evaluate. ``learning_report`` reads the figures from the
store.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spanloop.cli.console import err
from spanloop.runtime.command_line import command_line
from spanloop.runtime.job_progress import await_job, last_metrics
from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import SpanloopError

from .office_runner import make_office, run_office
from .stages import FinishedStages, StageDisplay

if TYPE_CHECKING:
    from spanloop.datadir import DataDir
    from spanloop.training.jobs import Job, JobSpec

MODEL: Final = "office"
"""Name of the model in the registry, and of its evaluations."""
TEST_PREFIX: Final = "test/"
TRAIN_PREFIX: Final = "train/"


class Recipe(NamedTuple):
    """Settings of the demo; the defaults were measured on two cores (docs/benchmarks.md)."""

    source: str = "smollm2"
    """The model's source, as for ``spanloop models add``."""
    seed: int = 0
    """Seed of tasks, shuffling and intervals. Sampling is not seeded, as in production."""
    test_tasks: int = 200
    train_tasks: int = 128
    sft_attempts: int = 4
    """Attempts of the base model at each training task."""
    sft_steps: int = 12
    sft_batch: int = 16
    sft_learning_rate: float = 3e-5
    grpo_attempts: int = 4
    """Attempts of the SFT model at each training task; the size of a group."""
    grpo_steps: int = 8
    grpo_batch: int = 16
    grpo_learning_rate: float = 3e-6


class Loop:
    """One run of the demo on running services; stages in ``finished`` are not run again."""

    def __init__(self, data_dir: "DataDir", recipe: Recipe, finished: FinishedStages, stages: StageDisplay) -> None:
        self._data_dir = data_dir
        self._recipe = recipe
        self._finished = finished
        self._stages = stages
        self._folder = data_dir.path / "demo"

    def run(self) -> list[str]:
        """Run the unfinished stages; return the versions (``name@version``) in order.

        Raises:
            SpanloopError: A stage failed.
        """
        recipe = self._recipe
        base = self._stage("model", f"the model {recipe.source} is fetched, checked and added", self._add_model)
        self._stage("tasks", "tasks with known answers are generated", self._make_tasks)
        self._evaluate(str(base["version"]))
        tuned = self._learn("sft", str(base["version"]), recipe.sft_attempts)
        self._evaluate(tuned)
        final = self._learn("dr_grpo", tuned, recipe.grpo_attempts)
        self._evaluate(final)
        return [str(base["version"]), tuned, final]

    def _add_model(self) -> dict[str, Any]:
        from spanloop.training.models import fetch_model
        from spanloop.training.models.check import require_model
        from spanloop.training.registry import Registry

        folder = fetch_model(self._recipe.source, self._folder / "model", self._stages.progress)
        for warning in require_model(self._recipe.source, folder):
            self._stages.note(warning.what)
        registry = Registry(self._data_dir)
        # A kill between adding and recording must not create a second version.
        version = next(iter(registry.list(MODEL)), None) or registry.add(
            MODEL, folder, metadata={"source": self._recipe.source}
        )
        self._stages.note(f"{version.size_bytes / 1e6:.0f} MB as {version.reference}")
        return {"version": version.reference}

    def _make_tasks(self) -> dict[str, Any]:
        recipe = self._recipe
        make_office(self._folder, seed=recipe.seed, train=recipe.train_tasks, test=recipe.test_tasks)
        self._stages.note(f"{recipe.train_tasks} for training, {recipe.test_tasks} for testing")
        return {}

    def _evaluate(self, version: str) -> None:
        def run_and_evaluate() -> dict[str, Any]:
            since = datetime.now(UTC)
            self._run_agent(version, "test.json", attempts=1)
            from spanloop.store import connect
            from spanloop.training.evaluation import evaluate

            with connect(self._data_dir) as store:
                evaluation = evaluate(
                    store, name=MODEL, model=version, task_prefix=TEST_PREFIX, since=since, seed=self._recipe.seed
                )
            self._stages.note(f"success {_percent(*evaluation.success)}")
            return {"evaluation": evaluation.evaluation_id}

        self._stage(f"evaluate {version}", f"{version} attempts the test tasks", run_and_evaluate)

    def _learn(self, kind: str, base: str, attempts: int) -> str:
        """Collect episodes of ``base`` on the training tasks and train on them; return the new version."""

        def collect() -> dict[str, Any]:
            since = datetime.now(UTC)
            self._run_agent(base, "train.json", attempts=attempts)
            return {"since": since.isoformat()}

        collected = self._stage(f"collect {kind}", f"{base} attempts the training tasks", collect)
        since = datetime.fromisoformat(collected["since"])

        def train() -> dict[str, Any]:
            return self._train(self._spec(kind, base, since))

        trained = self._stage(f"train {kind}", f"verl trains {base} on its own attempts ({kind.upper()})", train)
        return str(trained["version"])

    def _spec(self, kind: str, base: str, since: datetime) -> "JobSpec":
        from spanloop.training.jobs import JobKind, JobSpec

        recipe = self._recipe
        shared = JobSpec(
            kind=JobKind(kind),
            base=base,
            policy_version=base,
            task_prefix=TRAIN_PREFIX,
            since=since,
            seed=recipe.seed,
            # the recipe's number of steps is part of the measurement
            max_passes=1000,
            pause_serving=True,
            deploy=True,
        )
        if shared.kind is JobKind.SFT:
            settings: dict[str, Any] = {
                "steps": recipe.sft_steps,
                "batch_groups": recipe.sft_batch,
                "learning_rate": recipe.sft_learning_rate,
                "min_reward": 1.0,
            }
        else:
            settings = {
                "steps": recipe.grpo_steps,
                "batch_groups": recipe.grpo_batch,
                "group_size": max(2, recipe.grpo_attempts),
                "learning_rate": recipe.grpo_learning_rate,
                # the recipe was measured with these
                "loss_aggregation": "token-mean",
                "kl_budget": None,
            }
        return JobSpec.model_validate({**shared.model_dump(), **settings})

    def _train(self, spec: "JobSpec") -> dict[str, Any]:
        from spanloop.training.jobs import JobApi

        api = JobApi(self._data_dir)
        # A demo that was stopped has submitted the job already; the scheduler continues it.
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

    def _run_agent(self, version: str, tasks: str, *, attempts: int) -> None:
        """Serve ``version``, run the agent on the tasks, and convert its spans."""
        from spanloop.pipeline import run
        from spanloop.runtime import service_health
        from spanloop.store import connect
        from spanloop.training.deploy import deploy

        gateway = service_health.gateway_health(self._data_dir)
        if gateway is None or gateway.model != version or gateway.state != "serving":
            self._stages.progress("vLLM starts")
            deploy(self._data_dir, version)

        def show(done: int, total: int, mean: float) -> None:
            self._stages.progress(f"{done} of {total} attempts, mean reward {mean:.2f}")

        name = version.partition("@")[0]
        run_office(self._data_dir, self._folder, self._folder / tasks, model=name, attempts=attempts, on_progress=show)
        with connect(self._data_dir) as store:
            report = run(store)
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


def _percent(mean: float, low: float, high: float) -> str:
    return f"{mean:.0%} [{low:.0%}, {high:.0%}]"
