"""The settings of a training job, in parts.

Invariant: a setting is named, typed, limited and explained in one place only: a part, or the recipe's class
(:mod:`spanloop.training.recipes`). Its name occurs in one part only, so options, job files and the form are flat
(:mod:`~spanloop.training.spec.flat_settings`). Each value is valid alone;
:class:`~spanloop.training.spec.job_spec.JobSpec` checks them together.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from spanloop.foundation.version_names import NAME_PATTERN, REFERENCE_PATTERN
from spanloop.training.recipes.registry import AnyRecipe
from spanloop.training.recipes.setting import BASE, MODEL_OF_JOB

from .defaults import HELD_OUT_SHARE
from .episodes import Episodes
from .optimiser import Optimiser
from .run_settings import RunSettings


class JobSettings(BaseModel):
    """The settings of one training: the base model and the parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    base: Annotated[str, StringConstraints(pattern=rf"^{REFERENCE_PATTERN}$"), BASE]
    """The model version to start from: ``name@version``, ``name@alias`` such as ``mine@champion``, or ``name`` for its
    newest version. What an alias or a name means is looked up when the job starts."""

    name: Annotated[str, StringConstraints(pattern=rf"^({NAME_PATTERN})?$"), MODEL_OF_JOB] = ""
    """Model name to register the result under, as its next version; empty means the base's name."""

    held_out_share: Annotated[float, MODEL_OF_JOB] = Field(default=HELD_OUT_SHARE, ge=0, le=0.5, allow_inf_nan=False)
    """Share of the groups that a stage with another one after it does not train on. The gate between both measures its
    result on them, and ends the job with the last good version when it is worse than before; 0 leaves the gate out."""

    episodes: Episodes
    """The episodes to learn from."""

    recipe: AnyRecipe
    """The recipe and its settings; among flat settings ``kind`` is its name."""

    optimiser: Optimiser
    """Which weights train, how fast and how long."""

    run: RunSettings
    """Where and how it runs."""

    @property
    def kind(self) -> str:
        """The name of the recipe."""
        return self.recipe.name
