"""Submit evaluations and look them up.

Invariant: at most one evaluation of a model is open, because the versions take turns in the gateway.
"""

import os

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import JobError, NotRunningError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_queue
from spanloop.training.jobs.entities import job_from_row
from spanloop.training.jobs.job_queue import Kinds
from spanloop.training.jobs.paths import HasPath
from spanloop.training.jobs.queue_api import QueueApi
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.canary.gateway_canary import running_canary
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.stored_spec import EVALUATE, EvaluationJob, EvaluationSpec, parse_evaluation

from .sources import read_source


class EvaluationApi(QueueApi[EvaluationSpec]):
    """Submits, lists and cancels evaluations.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        super().__init__(data_dir, parse_evaluation, kinds=Kinds(only=EVALUATE), clock=clock)

    def submit(self, spec: EvaluationSpec) -> EvaluationJob:
        """Queue an evaluation; a running scheduler starts it when it is the next job.

        Raises:
            ConfigurationError: No file says how the agent attempts tasks.
            JobError: It cannot be evaluated now; the message says why.
            NotRunningError: No gateway serves the versions.
        """
        self.check(spec)
        with self._database.write() as session:
            # once more, now that no other process can submit one
            self._check_alone(spec)
            row = job_queue.insert_job(session, spec, now=self._clock())
            return job_from_row(row, parse_evaluation)

    def check(self, spec: EvaluationSpec) -> None:
        """Check that an evaluation can begin; stores nothing.

        Raises:
            ConfigurationError: No file says how the agent attempts tasks.
            JobError: A version has no weights, another evaluation of the model is open, or a canary runs.
            NotRunningError: No gateway serves the versions.
        """
        directory = DataDir(self._paths.root)
        registry = Registry(directory)
        for reference in spec.versions:
            registry.require_weights(registry.get(reference))
        read_source(directory, spec)
        self._check_alone(spec)
        if directory.find("gateway") is None:
            raise NotRunningError(
                "The gateway, which serves the versions to the agent, does not run.", next_step="spanloop up"
            )
        canary = running_canary(directory)
        if canary is not None:
            raise JobError(
                f"A canary of {canary.candidate} runs, and the gateway serves no other version meanwhile.",
                next_step="End it on the page Models, or: spanloop canary stop",
            )

    def _check_alone(self, spec: EvaluationSpec) -> None:
        name = spec.base.partition("@")[0]
        others = (each for each in self.list() if not each.is_finished and each.spec.base.partition("@")[0] == name)
        if (other := next(others, None)) is not None:
            raise JobError(
                f"{other.id} evaluates {', '.join(other.spec.versions)} already ({other.state}).",
                next_step=f"Wait for it, or: spanloop jobs cancel {other.id}",
            )
        jobs = JobApi(self._paths.root).list()
        deciding = (job for job in jobs if job.state is JobState.EVALUATING and job.spec.result_name == name)
        if (job := next(deciding, None)) is not None:
            raise JobError(
                f"Job {job.id} evaluates its new version of {name} now.", next_step=f"Wait: spanloop jobs wait {job.id}"
            )
