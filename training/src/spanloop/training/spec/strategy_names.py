"""The names of the strategies, as settings of a job."""

from enum import StrEnum


class Coreset(StrEnum):
    """How a job chooses a part of its groups or episodes."""

    NONE = "none"
    """All of them."""
    RANDOM = "random"
    """By the seed."""
    LOSS = "loss"
    """Those with the largest loss under the base."""
    DIVERSITY = "diversity"
    """Those whose responses differ most from each other."""
    HYBRID = "hybrid"
    """The most diverse among twice as many with the largest loss."""

    @property
    def needs_losses(self) -> bool:
        """Whether the base's loss decides."""
        return self in {Coreset.LOSS, Coreset.HYBRID}


class Curriculum(StrEnum):
    """The order in which a job trains on its groups."""

    NONE = "none"
    """Shuffled by the seed."""
    EASY_TO_HARD = "easy_to_hard"
    """From the highest pass rate to the lowest, in each pass over the data."""
    HARD_TO_EASY = "hard_to_easy"
    """From the lowest pass rate to the highest."""
