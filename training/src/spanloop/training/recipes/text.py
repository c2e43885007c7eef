"""The base classes of recipes that imitate or compare text."""

from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from .base import Default, LearnsFrom, Recipe
from .choices import Outcomes, Tokens
from .setting import EPISODES, OPTIMISATION


class RendersText(Recipe):
    """Learns from captured tokens and from messages that are rendered with the base's chat template."""

    tokens: Annotated[Tokens, EPISODES] = Tokens.ANY
    """``any``: captured tokens where an episode has some of the base's tokenizer, else its messages, rendered with the
    base's chat template; so spans of a foreign model train too. ``captured`` or ``rendered``: only these. ``none``: no
    episodes, only ``dialogs``."""


class Imitation(RendersText):
    """Raises the probability of stored text."""

    learns_from: ClassVar[LearnsFrom] = LearnsFrom.TEXT
    defaults: ClassVar = {
        "learning_rate": Default(
            1e-5,
            "between InstructGPT (Ouyang et al. 2022, appendix C.1: 9.65e-6 and 5.03e-6), Tulu 3 (Lambert et al. 2024: "
            "5e-6 for 8B) and TRL's default of 2e-5",
        ),
    }

    min_reward: Annotated[float | None, EPISODES] = Field(default=None, allow_inf_nan=False)
    """Only episodes with at least this reward, besides what ``outcomes`` asks for."""

    max_reward: Annotated[float | None, EPISODES] = Field(default=None, allow_inf_nan=False)
    """Only episodes with at most this reward; without it no reward is needed."""

    outcomes: Annotated[Outcomes, EPISODES] = Outcomes.SUCCESSFUL
    """Imitate only episodes whose outcome is ``success``, or all: failed ones and those without a reward too."""

    corrections: Annotated[bool, EPISODES] = True
    """Imitate the right answers that people wrote (``spanloop judge``) as well, whatever became of their episodes; not
    with ``tokens = "captured"``."""

    dialogs: Annotated[tuple[str, ...], EPISODES] = ()
    """Dialog files to imitate as well, each ``PATH`` or ``PATH=WEIGHT`` on the host of the job: JSON lines or a JSON
    list of OpenAI chat messages, ShareGPT or Alpaca. With the weight 2 each dialog is two rows, with 0.5 half of them
    are rows."""

    test_freq: Annotated[int, OPTIMISATION] = Field(default=0, ge=0, le=1_000_000)
    """Compute the loss of the held-out rows (``held_out_share``) every so many steps and after the last one: the metric
    ``val/loss``, a mean over tokens. 0 holds none out."""

    @property
    def validation_steps(self) -> int:
        """``test_freq``."""
        return self.test_freq

    @field_validator("dialogs")
    @classmethod
    def _absolute(cls, dialogs: tuple[str, ...]) -> tuple[str, ...]:
        """The job runs in another directory than the command that submits it."""
        return tuple(str(Path(text).absolute()) for text in dialogs)

    @model_validator(mode="after")
    def _has_range(self) -> Self:
        if self.min_reward is not None and self.max_reward is not None and self.min_reward > self.max_reward:
            raise ValueError(f"min_reward: {self.min_reward:g} is above the max_reward of {self.max_reward:g}")
        return self
