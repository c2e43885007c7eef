"""The stages of a job: several trainings in a row, each from the version that the one before it made.

Invariant: a stage is a ``JobSpec`` without stages of its own.
"""

from typing import NamedTuple

from .defaults import HELD_OUT_SHARE
from .job_spec import JobSpec


class Stage(NamedTuple):
    """One training of a job."""

    number: int
    """From 1."""
    total: int
    """Number of the job's stages."""
    spec: JobSpec
    """Its ``base`` is the job's; a later stage starts from the version before it."""
    held_out_share: float
    """Share of the groups that are held out, for the gate after the stage or for the validation loss (``test_freq``);
    0 for a stage that has neither."""

    @property
    def has_gate(self) -> bool:
        """Whether its result is measured before the next stage."""
        return self.number < self.total and self.held_out_share > 0

    @property
    def title(self) -> str:
        """``stage 1 of 2 (sft)``."""
        return f"stage {self.number} of {self.total} ({self.spec.kind})"

    def starting_from(self, reference: str) -> "Stage":
        """Return the stage with the version that it starts from."""
        return self._replace(spec=self.spec.changed(base=reference))


def stages_of(spec: JobSpec) -> tuple[Stage, ...]:
    """Return the stages of a job; one for a job without ``then``.

    Raises:
        ValueError: A stage is invalid; the message has its number and the setting.
    """
    specs = (spec.changed(then=(), held_out_share=HELD_OUT_SHARE), *spec.stages) if spec.stages else (spec,)
    total = len(specs)
    return tuple(
        Stage(number, total, stage, spec.held_out_share if number < total or stage.recipe.validation_steps else 0.0)
        for number, stage in enumerate(specs, 1)
    )
