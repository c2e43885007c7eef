"""What the gate between two stages of a job measured, and its file."""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

GATE_NAME: Final = "gate.json"
NLL: Final = "held_out_nll"
"""Mean negative log-probability of a trained token of the held-out rows, in nats."""
ACCURACY: Final = "held_out_accuracy"
"""Share of the held-out pairs whose better episode gained more log-probability than the worse one (Rafailov et al.
2023: the implicit reward)."""


class GateResult(BaseModel):
    """What a gate measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    measure: str
    """``held_out_nll`` (expected: at most) or ``held_out_accuracy`` (expected: at least)."""
    got: float
    expected: float
    passed: bool
    rows: int
    """Rows that were scored; with dpo a row counts once for each of its pairs."""

    def __str__(self) -> str:
        limit = "at most" if self.measure == NLL else "at least"
        outcome = "passed" if self.passed else "failed"
        return f"{self.measure} {outcome}: got {self.got:.4f}, expected {limit} {self.expected:.4f} ({self.rows} rows)"


def read_gate(folder: Path) -> GateResult | None:
    """Return the result of the gate after a stage; None before it."""
    path = folder / GATE_NAME
    return GateResult.model_validate_json(path.read_bytes()) if path.exists() else None
