"""Specifications of stored jobs and schedules: of trainings, and of evaluations.

Invariant: each text that a queue of this version stores is read, and settings that are not known are refused. An
evaluation names files and data sets, and copies nothing out of them: a command that a page starts is one that the
operator of the host wrote into a file.
"""

import json
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from spanloop.training.jobs.entities import StoredJob, StoredSchedule

from .fields import problems
from .job_spec import JobSpec

EVALUATE: Final = "evaluate"
"""The kind of these jobs; their ids begin with it."""


class EvaluationSpec(BaseModel):
    """Versions of one model attempt the same tasks, and are evaluated."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Literal["evaluate"] = EVALUATE

    versions: tuple[str, ...] = Field(min_length=1)
    """Each as ``name@version``; they attempt the tasks in this order."""

    file: str = ""
    """Absolute path of the ``app.toml`` whose ``[evaluation]`` counts; empty is that of ``spanloop.toml``."""

    data_set: str = ""
    """A data set (``name@v2``) whose tasks are attempted instead of those of the file."""

    max_attempts: int = Field(default=3, ge=1, le=100)
    """Maximum number of starts when the job's process or scheduler is killed."""

    @property
    def base(self) -> str:
        """The version that is evaluated first."""
        return self.versions[0]

    @property
    def steps(self) -> int:
        """Attempts in total are not known before the tasks are read."""
        return 0

    @property
    def uses_gpu(self) -> bool:
        """The gateway computes; this job only waits for it."""
        return False

    @property
    def max_runtime_minutes(self) -> float | None:
        """No limit beside that of each attempt."""
        return None


Job: TypeAlias = StoredJob[JobSpec]
"""A job with its specification."""
Schedule: TypeAlias = StoredSchedule[JobSpec]
"""A schedule with the specification of its jobs."""
EvaluationJob: TypeAlias = StoredJob[EvaluationSpec]
"""An evaluation with its specification."""
AnyJob: TypeAlias = StoredJob[JobSpec | EvaluationSpec]
"""A job of any kind."""


def parse_any_spec(text: str) -> JobSpec | EvaluationSpec:
    """Return the specification of a job of any kind in a stored text.

    Raises:
        ValueError: As `parse_spec`.
    """
    settings = json.loads(text)
    is_evaluation = isinstance(settings, dict) and cast("dict[str, Any]", settings).get("kind") == EVALUATE
    return parse_evaluation(text) if is_evaluation else parse_spec(text)


def parse_evaluation(text: str) -> EvaluationSpec:
    """Return the specification of an evaluation in a stored text.

    Raises:
        ValueError: As `parse_spec`.
    """
    try:
        return EvaluationSpec.model_validate_json(text)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error))) from error


def parse_spec(text: str) -> JobSpec:
    """Return the specification in a stored text.

    Raises:
        ValueError: Another version of spanloop wrote it; the message names each setting that cannot be read.
    """
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error))) from error
