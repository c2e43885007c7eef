"""The work of each step of a round, over the parts that a user can also call one by one.

Invariant: a step that is run again after a kill repeats nothing that was stored: attempts stand in the runner's ledger,
the job in the queue, the decision in the control database.
"""

import hashlib
import shutil
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spanloop.evaluation.results.bootstrap import Interval
from spanloop.evaluation.runner.acting import has_failed_environment
from spanloop.evaluation.runner.attempt import EndedAttempt, EndState
from spanloop.evaluation.runner.ledger import Counts, Summary
from spanloop.evaluation.runner.planning import API_KEY_ENV, RunRequest, plan_run
from spanloop.evaluation.runner.served_model import resolve_model
from spanloop.evaluation.runner.stored_tasks import tasks_of_run
from spanloop.evaluation.tasks import Rejected
from spanloop.foundation.errors import JobError, ServiceError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Promotion
from spanloop.pipeline import run as convert
from spanloop.pipeline.conversion_settings import conversion_settings
from spanloop.store import Store
from spanloop.training.attempt_pool.pooled_run import run_requested
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.decisions import Decisions
from spanloop.training.promotion.deploy import name_model
from spanloop.training.promotion.evaluation_run import EvaluationRun
from spanloop.training.promotion.evidence import Decision
from spanloop.training.promotion.outcome import PromotionOutcome
from spanloop.training.promotion.promote import Actions, promote, promote_always
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.flat_settings import flat_settings
from spanloop.training.spec.job_spec import JobSpec

from .app_file import App
from .gated_agent import AttemptGate, gated
from .progress import LoopProgress
from .rounds import LoopRound, StepName
from .services import settle

_POLL_S: Final = 0.5
_DIGITS: Final = 8
_HOPELESS: Final = 8
"""So many attempts that crash, and no other one, end a run: the agent is broken."""

Result = dict[str, Any]


class AgentBrokenError(SpanloopError):
    """Raised when every attempt of a run crashed."""


class GraderBrokenError(SpanloopError):
    """Raised when the grader gave no verdict on any attempt of a run."""


class StepContext(NamedTuple):
    """What the steps of a loop share."""

    data_dir: DataDir
    store: Store
    app: App
    rule: Promotion
    progress: LoopProgress
    gate: AttemptGate
    """Lets an attempt begin while the budget has room for it."""


def measure(context: StepContext, version: ModelVersion) -> Result:
    """Let a version attempt the evaluation's tasks, unless it has, and evaluate it.

    Raises:
        SpanloopError: A service is away; the same call continues.
    """
    run = EvaluationRun.of(version, context.app.evaluation)
    if not run.is_complete(context.data_dir):
        serve(context, version)
        _make_attempts(context, run.request())
        settle(context.data_dir)
    evaluation = run.evaluate(context.data_dir, context.store, reward_floor=context.rule.reward_range[0])
    return {
        "evaluation": evaluation.evaluation_id,
        "name": evaluation.name,
        "success": list(evaluation.success),
        "reward": list(evaluation.reward),
        "tasks": evaluation.tasks,
    }


def success_of(result: Mapping[str, Any] | None) -> Interval | None:
    """Return the success that `measure` measured."""
    return None if result is None or "success" not in result else Interval(*result["success"])


def collect(context: StepContext, number: LoopRound) -> Result:
    """Let the champion of the round attempt the training tasks, and convert the spans.

    Raises:
        SpanloopError: A service is away; the same call continues.
    """
    if not context.app.collects(number.number):
        return {"run": "", "attempts": 0}
    version = Registry(context.data_dir).get(number.champion)
    request = collection_request(context.app, number)
    serve(context, version)
    summary = _make_attempts(context, request)
    settle(context.data_dir)
    convert(context.store, options=conversion_settings(context.data_dir.path, None).options)
    return {
        "run": request.run_id,
        "attempts": summary.attempts,
        "graded": summary.graded,
        "successes": summary.successes,
    }


def collection_request(app: App, number: LoopRound) -> RunRequest:
    """Return the run of a round at the training tasks; other settings are another run."""
    settings = app.run.model_copy(update={"seed": app.run.seed + number.number - 1})
    identity = settings.model_dump_json(exclude={"parallel", "timeout_s", "pool", "attempts"})
    digest = hashlib.sha256(f"{number.champion} {identity}".encode()).hexdigest()[:_DIGITS]
    run_id = f"{number.model}-round-{number.number}-{digest}"
    return RunRequest(run_id=run_id, model=number.champion, **settings.model_dump())


def train(context: StepContext, number: LoopRound) -> Result:
    """Train the champion as the file says, on what the round collected; wait for the job.

    Raises:
        JobError: The job failed; the next call submits another one.
    """
    api = JobApi(context.data_dir)
    spec = training_spec(context, number)
    unusable = {JobState.FAILED, JobState.CANCELLED}
    submitted = next((job for job in api.list() if job.spec == spec and job.state not in unusable), None)
    job = submitted or api.submit(spec)
    while not job.is_finished:
        context.progress.progressed(job.step, job.steps_total, f"{job.state}, {job.id}")
        time.sleep(_POLL_S)
        job = api.get(job.id)
    if job.state is not JobState.SUCCEEDED:
        raise JobError(
            f"Job {job.id} {job.state}: {job.error or 'no reason is stored'}",
            next_step=f"Read spanloop jobs log {job.id}; the same command trains again on what was collected.",
        )
    return {"job": job.id, "kind": str(spec.kind), "candidate": job.model_version}


def training_spec(context: StepContext, number: LoopRound) -> JobSpec:
    """Return the job of a round: that of the file, of the champion, on the attempts of the round."""
    given = context.app.training(number.number)
    changes: dict[str, Any] = {"base": number.champion, "deploy": False, "deploy_always": False}
    if context.app.collects(number.number):
        settings = flat_settings(given)
        run_id = number.step(StepName.COLLECT).result or {}
        folder = context.data_dir.runs / str(run_id.get("run", ""))
        task_ids = tuple(task.id for task in tasks_of_run(folder))
        own = {"policy_version": number.champion, "since": number.started_at, "task_ids": task_ids}
        changes |= {name: value for name, value in own.items() if not settings.get(name)}
    return given.changed(**changes)


def decide(context: StepContext, number: LoopRound) -> Result:
    """Let the promotion rule decide about the candidate, and serve the champion.

    Raises:
        SpanloopError: A version cannot be served.
    """
    registry, decisions = Registry(context.data_dir), Decisions(context.data_dir)
    candidate = registry.get(number.candidate)
    decision = next(iter(decisions.list(candidate=candidate.reference, limit=1)), None)
    if decision is None or decision.outcome is PromotionOutcome.UNDECIDED:
        decision = _decision(context, number, candidate)
    if decision.outcome is PromotionOutcome.PROMOTED:
        serve(context, candidate)
    else:
        serve(context, registry.get(number.champion))
    return {"decision": decision.id, "outcome": decision.outcome.value, "reason": decision.evidence.reason}


def _decision(context: StepContext, number: LoopRound, candidate: ModelVersion) -> Decision:

    def show(text: str) -> None:
        context.progress.progressed(0, 0, text)

    actions = Actions(context.data_dir, on_progress=show)
    if context.app.training(number.number).run.deploy_always:
        return promote_always(candidate.reference, actions)
    name = EvaluationRun.of(candidate, context.app.evaluation).evaluation_name
    champion = Registry(context.data_dir).get(number.champion)
    for step, version in ((StepName.MEASURE, champion), (StepName.TEST, candidate)):
        if (number.step(step).result or {}).get("name") != name:
            measure(context, version)  # [evaluation] was changed since, and versions are compared on the same tasks
    return promote(context.store, candidate.reference, context.rule, actions, evaluation=name)


def serve(context: StepContext, version: ModelVersion) -> None:
    """Let the gateway serve a version, unless it does, by the names that the agent calls."""
    if context.app.model.called:
        name_model(context.data_dir, version.name, context.app.model.called)
    try:
        if resolve_model(context.data_dir, version.reference)[1] == version.reference:
            return
    except ServiceError:
        pass  # it serves another one, or none
    context.progress.progressed(0, 0, f"the gateway starts {version.reference}")
    Actions(context.data_dir).serve(version)


def _make_attempts(context: StepContext, request: RunRequest) -> Summary:
    stop = threading.Event()
    log = _RunProgress(context.progress, stop)
    plan = plan_run(context.data_dir, request, context.store, on_reject=log.rejected)
    plan = gated(plan, context.gate, has_key=API_KEY_ENV in request.environment)
    summary = run_requested(context.data_dir, request, plan, context.store, progress=log, stop=stop)
    context.gate.check()
    if log.is_hopeless or (summary.attempts and summary.states == {EndState.CRASHED.value: summary.attempts}):
        shutil.rmtree(plan.folder)  # with a corrected agent the attempts are made again
        raise AgentBrokenError(
            f"Every attempt of {request.agent!r} crashed: {log.last_error}",
            next_step=f"Read all of them: spanloop runs show {request.run_id}; correct "
            f"{'the environment, or raise its timeouts' if log.failed_in_environment else 'the agent'}",
        )
    if summary.grading_failures and not summary.graded:
        raise GraderBrokenError(
            f"Grader {request.grader!r} graded none of {summary.grading_failures} attempts: {log.last_grading_error}",
            next_step="Correct the grader; the same command grades the stored answers, and repeats no attempt.",
        )
    if summary.grading_failures:
        log.note(f"{summary.grading_failures} attempts could not be graded: {log.last_grading_error}")
    return summary


class _RunProgress:
    """Passes the progress of a run on, and stops one whose attempts all crash."""

    def __init__(self, progress: LoopProgress, stop: threading.Event) -> None:
        self._progress = progress
        self._stop = stop
        self._total = self._done = self._graded = self._successes = self._crashed = self._ended = 0
        self.last_error = self.last_grading_error = ""
        self.failed_in_environment = False
        """Whether the last crash was the environment's."""

    @property
    def is_hopeless(self) -> bool:
        """Whether enough attempts of this process crashed, and all of them did."""
        return self._crashed == self._ended >= _HOPELESS

    def rejected(self, rejected: Rejected) -> None:
        self._progress.note(f"no task: {rejected}")

    def started(self, counts: Counts) -> None:
        self._total, self._done = counts.total, counts.done
        self._show()

    def ended(self, ended: EndedAttempt) -> None:
        self._done += 1
        self._ended += 1
        if ended.end.state is EndState.CRASHED:
            self._crashed += 1
            lines = ended.end.error.strip().splitlines()
            self.last_error = lines[-1] if lines else f"exit status {ended.end.exit_code}"
            self.failed_in_environment = has_failed_environment(ended.end)
        self.last_grading_error = ended.grading_error or self.last_grading_error
        if ended.verdict is not None:
            self._graded += 1
            self._successes += ended.verdict.is_success
        if self.is_hopeless:
            self._stop.set()
        self._show()

    def note(self, text: str) -> None:
        self._progress.note(text)

    def _show(self) -> None:
        share = f", {self._successes / self._graded:.0%} succeed" if self._graded else ""
        self._progress.progressed(self._done, self._total, f"attempts{share}")
