"""Specifications of stored jobs and schedules.

Invariant: `parse_spec` reads each text that a queue of this version stores, and refuses settings that it does not know.
"""

import json
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from spanloop.training.jobs.entities import StoredJob, StoredSchedule

from .evaluation_spec import EVALUATE, EvaluationSpec
from .fields import problems
from .job_spec import JobSpec

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
