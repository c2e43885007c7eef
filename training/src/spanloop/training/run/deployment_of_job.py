"""What becomes of a job's version after the training: nothing, a deployment, or an evaluation and a decision.

Invariant: whatever happens here, the version is registered, and an error says so.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from spanloop.foundation.errors import JobError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.semconv import attributes as names
from spanloop.store import connect

from ..jobs.leases import JobLease, JobLeaseLostError
from ..jobs.progress import report_evaluation
from ..models.registry import ModelVersion
from ..promotion.decisions import Decisions
from ..promotion.job_promotion import decide_in_job
from ..promotion.promote import Actions, promote_always
from ..promotion.serving_pause import ServingPause
from ..spec.stored_spec import Job
from .monitor.job_trace import JobTrace


class TrainedJob(NamedTuple):
    """A job that has trained, and its last version."""

    data_dir: DataDir
    job: Job
    token: int
    version: ModelVersion

    @property
    def lease(self) -> JobLease:
        """The job, and the fencing token of this process."""
        return JobLease(self.job.id, self.token)


def deploy_as_asked(
    trained: TrainedJob, trace: JobTrace, pause: ServingPause, on_progress: Callable[[str], None]
) -> None:
    """Deploy the version when the job says so, or when the promotion rule does.

    Raises:
        JobError: It cannot be evaluated or served.
        JobLeaseLostError: Another runner has the job.
    """
    if trained.job.spec.run.deploy_always:
        pause.hand_over()
        _deploy(trained, trace, on_progress)
    elif trained.job.spec.run.deploy:
        pause.end()
        _evaluate(trained, trace, on_progress)


def _deploy(trained: TrainedJob, trace: JobTrace, on_progress: Callable[[str], None]) -> None:
    if Decisions(trained.data_dir).of_job(trained.job.id) is not None:
        return
    reference = trained.version.reference
    with (
        _registered(trained, "deploy it", f"spanloop models deploy {reference}"),
        trace.span("rl.deploy", {names.RL_MODEL_VERSION: reference}),
    ):
        promote_always(reference, Actions(trained.data_dir, trained.lease, on_progress=on_progress))


def _evaluate(trained: TrainedJob, trace: JobTrace, on_progress: Callable[[str], None]) -> None:
    reference = trained.version.reference
    report_evaluation(trained.data_dir, *trained.lease)
    with (
        _registered(trained, "evaluate it", f"spanloop jobs retry {trained.job.id}"),
        connect(trained.data_dir) as store,
        trace.span("rl.evaluate", {names.RL_MODEL_VERSION: reference}) as span,
    ):
        decision = decide_in_job(trained.data_dir, store, trained.version, trained.lease, on_progress)
        span.attributes[names.RL_VERDICT] = decision.outcome.value
    on_progress(f"{reference} {decision.outcome}: {decision.evidence.reason}")


@contextmanager
def _registered(trained: TrainedJob, what: str, next_step: str) -> Generator[None]:
    try:
        yield
    except JobLeaseLostError:
        raise
    except SpanloopError as error:
        raise JobError(
            f"Job {trained.job.id} trained and registered {trained.version.reference}, but could not {what}: "
            f"{error.what}",
            next_step=f"{error.next_step.rstrip('.')}; then: {next_step}",
        ) from error
