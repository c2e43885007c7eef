"""What a job with ``--deploy`` does after its training: evaluate the new version and let the rule decide.

Invariant: the job succeeds whatever is decided, because its version is registered. A killed job decides again; a
decision that it has made already stays.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from spanloop.evaluation.results import Evaluation, EvaluationError
from spanloop.foundation.errors import NotRunningError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Configuration, load_configuration
from spanloop.store import Store
from spanloop.training.jobs.leases import JobLease, JobLeaseLostError
from spanloop.training.models.registry import ModelVersion, Registry
from spanloop.training.promotion.outcome import PromotionOutcome

from .canary.gateway_canary import served_version
from .decisions import Contest, Decisions
from .evaluation_run import EvaluationRun, ignore_attempts
from .evidence import Decision, Evidence, Judgement
from .promote import Actions, promote


def decide_in_job(
    data_dir: DataDir, store: Store, version: ModelVersion, lease: JobLease, on_progress: Callable[[str], None]
) -> Decision:
    """Evaluate the version of a job as ``[evaluation]`` says, decide as ``[promotion]`` says, and serve it if promoted.

    Raises:
        ConfigurationError: ``spanloop.toml``, the tasks, the agent or the grader cannot be used.
        JobLeaseLostError: Another runner has the job.
        SpanloopError: A version cannot be served, or a service is away.
    """
    decisions = Decisions(data_dir)
    decided = decisions.of_job(lease.job_id)
    if decided is not None and decided.outcome is not PromotionOutcome.UNDECIDED:
        return decided
    configuration = load_configuration(data_dir.path)
    contest = decisions.contest(version.reference)
    actions = Actions(data_dir, lease, on_progress=on_progress)
    with ServedMeanwhile(data_dir, version.name, actions) as served:
        try:
            name = _measure(data_dir, store, contest, configuration, actions)
            decision = promote(store, version.reference, configuration.promotion, actions, evaluation=name)
        except EvaluationError as error:
            evidence = Evidence(reason=f"{error.what} Next: {error.next_step}")
            judgement = Judgement(outcome=PromotionOutcome.UNDECIDED, evidence=evidence)
            decision = decisions.record(contest, judgement, rule=configuration.promotion, lease=lease)
        served.stays = decision.outcome is PromotionOutcome.PROMOTED
    return decision


def _measure(data_dir: DataDir, store: Store, contest: Contest, configuration: Configuration, actions: Actions) -> str:
    """Let champion and candidate attempt the tasks; return the name of their evaluations, empty without tasks."""
    settings = configuration.evaluation
    if not settings.tasks or contest.champion is None:
        return ""
    runs = [EvaluationRun.of(version, settings) for version in (contest.champion, contest.candidate)]
    for run in runs:
        measure(data_dir, store, run, actions, reward_floor=configuration.promotion.reward_range[0])
    return runs[0].evaluation_name


def measure(
    data_dir: DataDir,
    store: Store,
    run: EvaluationRun,
    actions: Actions,
    *,
    reward_floor: float,
    on_attempts: Callable[[int, int], None] = ignore_attempts,
) -> Evaluation:
    """Let a version attempt the tasks, unless it has, and evaluate it.

    Args:
        data_dir: The data directory.
        store: Its store.
        run: The version and the tasks.
        actions: Let the gateway serve the version.
        reward_floor: The reward of an attempt that has none.
        on_attempts: Called with the attempts that are made and with all of them.

    Raises:
        SpanloopError: The version cannot be served, no attempt counts, or a service is away.
    """
    if not run.is_complete(data_dir):
        actions.serve(run.version)
        run.make_attempts(data_dir, store, actions.on_progress, on_attempts)
    evaluation = run.evaluate(data_dir, store, reward_floor=reward_floor)
    actions.on_progress(
        f"{evaluation.evaluation_id}: success {evaluation.success.value:.1%} on {evaluation.tasks} tasks"
    )
    return evaluation


class ServedMeanwhile:
    """Serves again at its end what the versions of a model replaced, unless what is served by then ``stays``.

    The versions that are evaluated take turns in the gateway. Models beside them are served as before.
    """

    def __init__(self, data_dir: DataDir, name: str, actions: Actions) -> None:
        self._data_dir = data_dir
        self._name = name
        self._actions = actions
        self._before = self._now()
        self.stays = False

    def _now(self) -> str:
        try:
            return served_version(self._data_dir, self._name)
        except NotRunningError:
            return ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._before or self.stays or isinstance(error, JobLeaseLostError):
            return
        if self._now() not in {"", self._before}:
            self._actions.serve(Registry(self._data_dir).get(self._before))
