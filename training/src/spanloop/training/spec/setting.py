"""How a setting of a training job is presented, and which kinds of job use it.

Each field of :class:`~spanloop.training.spec.job_settings.JobSettings` has one :class:`Setting` in its annotation.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from spanloop.training.jobs.kinds import JobKind


class Panel(StrEnum):
    """Headings under which the command line's help, the form and the reference page list the settings."""

    MODEL = "Model"
    EPISODES = "Episodes to learn from"
    OPTIMISATION = "Optimisation"
    RUN = "Where and how it runs"


@dataclass(frozen=True, slots=True)
class Setting:
    """How a field is presented, and which kinds of job use it; metadata of the field's annotation."""

    panel: Panel
    is_basic: bool = False
    """Shown in the form at once; the others are in its expander."""
    kinds: frozenset[JobKind] = frozenset(JobKind)
    """Kinds that use the setting; others refuse a value that is not the default."""
    is_model: bool = False
    """The value is a registered model version."""
    is_of_job: bool = False
    """A stage of a job cannot have a value of its own."""
    is_of_stage: bool = False
    """A later stage does not take over the value of the first."""


POLICY_GRADIENTS: Final = frozenset(kind for kind in JobKind if kind.is_policy_gradient)
MODEL: Final = Setting(Panel.MODEL)
MODEL_OF_JOB: Final = Setting(Panel.MODEL, is_of_job=True)
BASE: Final = Setting(Panel.MODEL, is_basic=True, is_model=True, is_of_job=True)
EPISODES: Final = Setting(Panel.EPISODES)
POLICY_VERSION: Final = Setting(Panel.EPISODES, is_model=True)
EPISODES_TEXT: Final = Setting(Panel.EPISODES, kinds=frozenset(JobKind) - POLICY_GRADIENTS)
EPISODES_GROUPS: Final = Setting(
    Panel.EPISODES, kinds=frozenset(kind for kind in JobKind if kind.is_group_relative or kind is JobKind.DPO)
)
EPISODES_SFT: Final = Setting(Panel.EPISODES, kinds=frozenset({JobKind.SFT}))
EPISODES_DPO: Final = Setting(Panel.EPISODES, kinds=frozenset({JobKind.DPO}))
DPO: Final = Setting(Panel.OPTIMISATION, kinds=frozenset({JobKind.DPO}))
OPTIMISATION: Final = Setting(Panel.OPTIMISATION)
OPTIMISATION_BASIC: Final = Setting(Panel.OPTIMISATION, is_basic=True)
POLICY_GRADIENT: Final = Setting(Panel.OPTIMISATION, kinds=POLICY_GRADIENTS)
STORED_ADVANTAGES: Final = Setting(Panel.OPTIMISATION, kinds=POLICY_GRADIENTS - {JobKind.PPO})
PPO: Final = Setting(Panel.OPTIMISATION, kinds=frozenset({JobKind.PPO}))
SFT: Final = Setting(Panel.OPTIMISATION, kinds=frozenset({JobKind.SFT}))
RUN: Final = Setting(Panel.RUN)
# the kinds have different configurations of verl
VERL: Final = Setting(Panel.RUN, is_of_stage=True)
# the rows of dpo's pairs differ in number, and the passes of the ranks must not
RUN_RANKS: Final = Setting(Panel.RUN, kinds=frozenset(JobKind) - {JobKind.DPO})
RUN_OF_JOB: Final = Setting(Panel.RUN, is_of_job=True)
RUN_BASIC: Final = Setting(Panel.RUN, is_basic=True, is_of_job=True)


def setting_of(metadata: list[Any]) -> Setting:
    """Return the :class:`Setting` among a field's metadata."""
    return next(item for item in metadata if isinstance(item, Setting))
