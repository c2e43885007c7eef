"""How far the stages of a job are, from the registry and the files of the stages."""

from typing import NamedTuple

from spanloop.training.jobs.states import JobState

from ..dataset.manifest import MANIFEST_NAME
from ..jobs.paths import ControlPaths, HasPath
from ..jobs.training_ids import training_id
from ..models.registry import Registry
from ..spec.stages import Stage, stages_of
from ..spec.stored_spec import Job
from .gate_result import GateResult, read_gate

ENDED_HERE = "ended here"
"""The state of a stage that began, registered nothing, and whose job has ended."""


class StageProgress(NamedTuple):
    """One stage of a job."""

    stage: Stage
    training_id: str
    """Its metrics, its records and its folder."""
    state: str
    """``waiting``, ``running``, ``done`` or ``ended here``."""
    version: str
    """The ``name@version`` that it registered; empty before that."""
    gate: GateResult | None
    """The result of the gate after it; None before that, and for a stage without one."""


def stage_progress(data_dir: HasPath, registry: Registry, job: Job) -> list[StageProgress]:
    """Return the stages of ``job`` in their order."""
    return [_progress(data_dir, registry, job, stage) for stage in stages_of(job.spec)]


def _progress(data_dir: HasPath, registry: Registry, job: Job, stage: Stage) -> StageProgress:
    training = training_id(job.id, stage.number)
    folder = ControlPaths.of(data_dir).job(training)
    version = registry.of_training(training)
    has_begun = (folder / MANIFEST_NAME).is_file()
    if version is not None:
        state = "done"
    elif has_begun:
        state = ENDED_HERE if job.is_finished else "running"
    else:
        state = "not begun" if job.state in {JobState.FAILED, JobState.CANCELLED} else "waiting"
    return StageProgress(stage, training, state, version.reference if version else "", read_gate(folder))
