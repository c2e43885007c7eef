"""Specifications of stored jobs and schedules.

Invariant: `parse_spec` reads each text that a queue of this version stores, and refuses settings that it does not know.
"""

from typing import TypeAlias

from pydantic import ValidationError

from spanloop.training.jobs.entities import StoredJob, StoredSchedule

from .fields import problems
from .job_spec import JobSpec

Job: TypeAlias = StoredJob[JobSpec]
"""A job with its specification."""
Schedule: TypeAlias = StoredSchedule[JobSpec]
"""A schedule with the specification of its jobs."""


def parse_spec(text: str) -> JobSpec:
    """Return the specification in a stored text.

    Raises:
        ValueError: Another version of spanloop wrote it; the message names each setting that cannot be read.
    """
    try:
        return JobSpec.model_validate_json(text)
    except ValidationError as error:
        raise ValueError("; ".join(problems(error))) from error
