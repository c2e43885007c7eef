"""What a data strategy reports."""

from pydantic import BaseModel, ConfigDict


class StrategyReport(BaseModel):
    """What a strategy kept, and why; a line of the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    strategy: str
    """``curriculum``, ``coreset`` or ``replay``."""
    unit: str
    """What it keeps or leaves out as a whole: ``groups`` or ``episodes``."""
    kept: int
    available: int
    """Units that the strategies before it left."""
    why: str

    def __str__(self) -> str:
        return f"{self.strategy} kept {self.kept} of {self.available} {self.unit} ({self.why})"
