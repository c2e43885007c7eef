"""The demo that learns: a small real model behind a real agent, before and after training on its own traces.

Model fetched → served → evaluated on test tasks → set to training tasks → SFT on what it did right → evaluated → set to
training tasks again → GRPO on good and bad attempts → evaluated. Every figure comes from the store; see ``report``.
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

from .ledger import Ledger
from .office import make_office, run_office
from .stages import Stages

if TYPE_CHECKING:
    from spanloop.datadir import DataDir
    from spanloop.training.jobs import Job, JobSpec

MODEL: Final = "office"
"""Name of the model in the registry, and of its evaluations."""
TEST_PREFIX: Final = "test/"
TRAIN_PREFIX: Final = "train/"


class Recipe(NamedTuple):
    """How much of what; the defaults were measured on two cores (docs/benchmarks.md)."""

    source: str = "smollm2"
    """Of the model, as ``spanloop models add`` takes it."""
    seed: int = 0
    """Of tasks, shuffling and intervals. Sampling itself is not seeded: an agent in production is not."""
    test_tasks: int = 200
    train_tasks: int = 128
    sft_attempts: int = 4
    """At each training task, by the base model."""
    sft_steps: int = 12
    sft_batch: int = 16
    sft_learning_rate: float = 3e-5
    grpo_attempts: int = 4
    """At each training task, by the model that SFT made; the size of a group."""
    grpo_steps: int = 8
    grpo_batch: int = 16
    grpo_learning_rate: float = 3e-6


class Loop:
    """One run of the demo in one data directory.

    Args:
        data_dir: Whose services run.
        recipe: What to do.
        ledger: What has been done.
        stages: Where to say so.
    """

    def __init__(self, data_dir: "DataDir", recipe: Recipe, ledger: Ledger, stages: Stages) -> None:
        self._data_dir = data_dir
        self._recipe = recipe
        self._ledger = ledger
        self._stages = stages
        self._folder = data_dir.path / "demo"

    def run(self) -> list[str]:
        """Do what has not been done; returns the versions (``name@version``) in order.

        Raises:
            SpanloopError: A stage failed; says which and what next.
        """
        recipe = self._recipe
        base = self._stage("model", f"the model {recipe.source} is fetched, checked and added", self._add_model)
        self._stage("tasks", "tasks are made, each with an answer that can be checked", self._make_tasks)
        self._evaluate(str(base["version"]))
        tuned = self._learn("sft", str(base["version"]), recipe.sft_attempts)
        self._evaluate(tuned)
        final = self._learn("grpo", tuned, recipe.grpo_attempts)
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
        # A kill after adding and before the ledger must not make a second first version.
        version = next(iter(registry.list(MODEL)), None) or registry.add(
            MODEL, folder, metadata={"source": self._recipe.source}
        )
        self._stages.note(f"{version.size_bytes / 1e6:.0f} MB as {version.reference}")
        return {"version": version.reference}

    def _make_tasks(self) -> dict[str, Any]:
        recipe = self._recipe
        make_office(self._folder, seed=recipe.seed, train=recipe.train_tasks, test=recipe.test_tasks)
        self._stages.note(f"{recipe.train_tasks} to train on, {recipe.test_tasks} to test with")
        return {}

    def _evaluate(self, version: str) -> None:
        def work() -> dict[str, Any]:
            since = datetime.now(UTC)
            self._work(version, "test.json", attempts=1)
            from spanloop.store import connect
            from spanloop.training.evaluation import evaluate

            with connect(self._data_dir) as store:
                found = evaluate(
                    store, name=MODEL, model=version, task_prefix=TEST_PREFIX, since=since, seed=self._recipe.seed
                )
            self._stages.note(f"success {_percent(*found.success)}")
            return {"evaluation": found.evaluation_id}

        self._stage(f"evaluate {version}", f"{version} works on the test tasks", work)

    def _learn(self, kind: str, base: str, attempts: int) -> str:
        """Collect episodes of ``base`` on the training tasks and train on them; returns the new version."""

        def collect() -> dict[str, Any]:
            since = datetime.now(UTC)
            self._work(base, "train.json", attempts=attempts)
            return {"since": since.isoformat()}

        collected = self._stage(f"collect {kind}", f"{base} works on the training tasks", collect)
        since = datetime.fromisoformat(collected["since"])

        def train() -> dict[str, Any]:
            return self._train(self._spec(kind, base, since))

        trained = self._stage(f"train {kind}", f"verl trains {base} on what it did ({kind.upper()})", train)
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
            }
        return JobSpec.model_validate({**shared.model_dump(), **settings})

    def _train(self, spec: "JobSpec") -> dict[str, Any]:
        from spanloop.training.jobs import JobApi

        api = JobApi(self._data_dir)
        # The same job when the demo was stopped meanwhile: its scheduler went on with it, or will.
        lost = {JobState.FAILED, JobState.CANCELLED}
        known = next((job for job in api.list() if job.spec == spec and job.state not in lost), None)
        shown_step, metrics = 0, ""

        def show(job: "Job") -> None:
            nonlocal shown_step, metrics
            if job.step != shown_step:
                shown_step, metrics = job.step, last_metrics(self._data_dir, job.id)
            self._stages.progress(f"{job.state}, step {job.step} of {job.steps_total or '?'}  {metrics}")

        job = await_job(api, self._data_dir, (known or api.submit(spec)).id, show)
        self._stages.note(f"{job.model_version} after {job.steps_total} steps")
        return {"version": job.model_version, "job": job.id}

    def _work(self, version: str, tasks: str, *, attempts: int) -> None:
        """Serve ``version``, let the agent work, and convert what it did."""
        from spanloop.pipeline import run
        from spanloop.runtime import service_health
        from spanloop.store import connect
        from spanloop.training.deploy import deploy

        engine = service_health.gateway_health(self._data_dir)
        if engine is None or engine.model != version or engine.state != "serving":
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
        done = self._ledger.result(name)
        if done is not None:
            err.print(f"[green]✓[/green] {title} [dim](done before)[/dim]")
            return done
        began_s = time.monotonic()
        with self._saying_how_to_go_on(), self._stages.stage(title):
            try:
                result = work()
            except BaseException:
                with suppress(OSError):  # the reason counts more than the time
                    self._ledger.interrupt(name, time.monotonic() - began_s)
                raise
            self._ledger.finish(name, result, time.monotonic() - began_s)
        return result

    @contextmanager
    def _saying_how_to_go_on(self) -> Generator[None]:
        try:
            yield
        except KeyboardInterrupt:
            err.print("stopped; what is done is kept, and the same command goes on")
            raise
        except SpanloopError as error:
            if not error.next_step:
                error.next_step = f"Read {command_line('jobs list', self._data_dir)}; the same command goes on."
            raise


def _percent(mean: float, low: float, high: float) -> str:
    return f"{mean:.0%} [{low:.0%}, {high:.0%}]"
