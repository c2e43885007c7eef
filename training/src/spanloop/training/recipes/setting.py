"""How a setting of a training job is presented.

Each setting, of a recipe or of the job, has one :class:`Setting` in its annotation.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Panel(StrEnum):
    """Headings under which the command line's help, the form and the reference page list the settings."""

    MODEL = "Model"
    EPISODES = "Episodes to learn from"
    OPTIMISATION = "Optimisation"
    RUN = "Where and how it runs"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a field is presented; metadata of the field's annotation."""

    panel: Panel
    is_basic: bool = False
    """Shown in the form at once; the others are in its expander."""
    is_model: bool = False
    """The value is a registered model version."""
    is_of_job: bool = False
    """A stage of a job cannot have a value of its own."""
    is_of_stage: bool = False
    """A later stage does not take over the value of the first."""


MODEL: Final = Setting(Panel.MODEL)
MODEL_OF_JOB: Final = Setting(Panel.MODEL, is_of_job=True)
BASE: Final = Setting(Panel.MODEL, is_basic=True, is_model=True, is_of_job=True)
EPISODES: Final = Setting(Panel.EPISODES)
POLICY_VERSION: Final = Setting(Panel.EPISODES, is_model=True)
OPTIMISATION: Final = Setting(Panel.OPTIMISATION)
OPTIMISATION_BASIC: Final = Setting(Panel.OPTIMISATION, is_basic=True)
RUN: Final = Setting(Panel.RUN)
VERL: Final = Setting(Panel.RUN, is_of_stage=True)
RUN_OF_JOB: Final = Setting(Panel.RUN, is_of_job=True)
RUN_BASIC: Final = Setting(Panel.RUN, is_basic=True, is_of_job=True)


def setting_of(metadata: list[Any], default: Setting = OPTIMISATION) -> Setting:
    """Return the :class:`Setting` among a field's metadata; ``default`` for a field that has none."""
    return next((item for item in metadata if isinstance(item, Setting)), default)
