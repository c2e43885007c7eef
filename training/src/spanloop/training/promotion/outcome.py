"""What was decided about a candidate, stored as its string value."""

from enum import StrEnum


class PromotionOutcome(StrEnum):
    """What was decided about a candidate."""

    PROMOTED = "promoted"
    """It is the champion."""
    KEPT = "kept"
    """The champion stays."""
    ROLLED_BACK = "rolled_back"
    """The champion before it is the champion again."""
    UNDECIDED = "undecided"
    """More tasks are needed."""
