"""The specification of an evaluation job: the versions, and where the agent and the tasks are stated.

Invariant: it names files and data sets, and copies nothing out of them. A command that a page starts is one that the
operator of the host wrote into a file.
"""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

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
