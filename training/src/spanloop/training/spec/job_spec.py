"""The specification of a training job: its settings, checked together.

Invariant: a valid spec has only settings that its kind uses; no setting is silently ignored. The registry checks that
the base model exists, when the job is submitted and again when it runs.
"""

from datetime import UTC, datetime
from typing import Self

from pydantic import model_validator

from .checks import contradictions
from .choices import Device
from .defaults import HELD_OUT_SHARE
from .job_settings import JobSettings
from .stage_specs import stage_specs


class JobSpec(JobSettings):
    """One training job: the base model, the episodes and the hyperparameters."""

    @model_validator(mode="after")
    def _without_contradictions(self) -> Self:
        found = next(contradictions(self), None)
        if found is not None:
            raise ValueError(found)
        return self

    @model_validator(mode="after")
    def _valid_stages(self) -> Self:
        if not self.then and not self.recipe.validation_steps and self.held_out_share != HELD_OUT_SHARE:
            raise ValueError("held_out_share: a setting of a job with stages (then), or with test_freq")
        if self.recipe.validation_steps and not self.held_out_share:
            raise ValueError("test_freq: without a held_out_share no row is left to compute the loss of")
        if self.then:
            stage_specs(self)
        return self

    @property
    def result_name(self) -> str:
        """The model name that the result is registered under."""
        return self.name or self.base.partition("@")[0]

    @property
    def uses_gpu(self) -> bool:
        """Whether it may compute on a GPU."""
        return self.device is not Device.CPU

    @property
    def since_utc(self) -> datetime | None:
        """``since`` in UTC."""
        return None if self.since is None else self.since.astimezone(UTC)

    @property
    def until_utc(self) -> datetime | None:
        """``until`` in UTC."""
        return None if self.until is None else self.until.astimezone(UTC)
