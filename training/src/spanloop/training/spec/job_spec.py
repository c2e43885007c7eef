"""The specification of a training job: its settings, checked together, and its stages.

Invariant: a valid spec has only settings that its recipe uses; no setting is silently ignored. A stage has no stages of
its own. The registry checks that the base model exists, when the job is submitted and again when it runs.
"""

from collections.abc import Mapping
from typing import Any, Self, cast

from pydantic import ValidationError, model_validator

from .checks import contradictions
from .choices import Device
from .defaults import HELD_OUT_SHARE
from .flat_settings import flat_settings, split_settings
from .job_settings import JobSettings
from .stage_specs import stage_problem, stage_settings


class JobSpec(JobSettings):
    """One training job: the base model, the episodes, the recipe, and further stages."""

    stages: tuple["JobSpec", ...] = ()
    """The trainings after this one, each from the version that the one before it made."""

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Return the spec of flat settings, ``kind`` among them; what they leave out has the recipe's default.

        Raises:
            ValidationError: A setting is invalid.
        """
        return cls.model_validate(settings)

    def changed(self, **settings: Any) -> Self:
        """Return the spec with other values of these flat settings; its stages stay as they are.

        Raises:
            ValidationError: A setting is invalid.
        """
        return type(self).model_validate(flat_settings(self) | settings)

    @model_validator(mode="before")
    @classmethod
    def _in_parts(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        parts = split_settings(cast("Mapping[str, Any]", data))
        then = parts.pop("then", ())
        if then:
            first = cls.model_validate(parts | {"held_out_share": HELD_OUT_SHARE, "stages": ()})
            given: list[Any] = [then] if isinstance(then, str | Mapping) else list(then)
            parts["stages"] = tuple(
                stage if isinstance(stage, JobSpec) else cls._stage(first, stage, number)
                for number, stage in enumerate(given, 2)
            )
        return parts

    @classmethod
    def _stage(cls, first: Self, stage: Any, number: int) -> Self:
        settings = stage_settings(first, stage, number)
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise ValueError(stage_problem(error, number)) from error

    @model_validator(mode="after")
    def _without_contradictions(self) -> Self:
        found = next(contradictions(self), None)
        if found is not None:
            raise ValueError(found)
        return self

    @model_validator(mode="after")
    def _valid_stages(self) -> Self:
        validates = self.recipe.validation_steps
        if not self.stages and not validates and self.held_out_share != HELD_OUT_SHARE:
            raise ValueError("held_out_share: a setting of a job with stages (then), or with test_freq")
        if validates and not self.held_out_share:
            raise ValueError("test_freq: without a held_out_share no row is left to compute the loss of")
        for number, stage in enumerate(self.stages, 2):
            if stage.stages:
                raise ValueError(f"then: stage {number}: then is a setting of the whole job")
        return self

    @property
    def result_name(self) -> str:
        """The model name that the result is registered under."""
        return self.name or self.base.partition("@")[0]

    @property
    def uses_gpu(self) -> bool:
        """Whether it may compute on a GPU."""
        return self.run.device is not Device.CPU

    @property
    def steps(self) -> int:
        """Optimiser steps of its first stage."""
        return self.optimiser.steps

    @property
    def max_attempts(self) -> int:
        """Maximum number of starts."""
        return self.run.max_attempts

    @property
    def max_runtime_minutes(self) -> float | None:
        """Longest run time of all attempts together; None is no limit."""
        return self.run.max_runtime_minutes
