"""Ids of the trainings of a job: its stages have folders, metrics, records and versions of their own."""

from typing import Final

_SEPARATOR: Final = "."


def training_id(job_id: str, stage: int) -> str:
    """Return the id of a stage of a job; the first stage has the job's id."""
    return job_id if stage == 1 else f"{job_id}{_SEPARATOR}{stage}"


def job_of(training: str) -> str:
    """Return the job of a :func:`training_id`."""
    return training.partition(_SEPARATOR)[0]
