"""What a decision rests on, as it is stored with the decision and shown."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from spanloop.evaluation.results import Interval
from spanloop.foundation.settings import Promotion
from spanloop.foundation.settings.metric import Metric
from spanloop.training.promotion.outcome import PromotionOutcome


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Measured(_Record):
    """One metric of both versions on their common tasks, or on the sessions of a canary."""

    metric: Metric
    count: int
    """Tasks of both; in a canary: sessions of the candidate."""
    candidate: float
    """Mean over tasks."""
    champion: float
    low: float | None = None
    """Ends of the interval of the difference (candidate minus champion) that holds at all looks; None where the metric
    has no bounds."""
    high: float | None = None
    better_e_value: float | None = None
    """Evidence that the candidate is better by more than the margin, as the factor by which a bet on it has grown."""
    worse_e_value: float | None = None
    """Evidence that it is worse by more than the tolerance."""
    wins: int = 0
    """Tasks at which the candidate is better."""
    losses: int = 0

    @property
    def difference(self) -> float:
        """Candidate minus champion."""
        return self.candidate - self.champion

    @property
    def interval(self) -> Interval | None:
        """The difference with its interval at all looks; None where the metric has no bounds."""
        return None if self.low is None or self.high is None else Interval(self.difference, self.low, self.high)


class GuardCheck(_Record):
    """One limit of a guard."""

    metric: Metric
    limit: str
    """As in ``at_most 0.25``."""
    holds: bool
    candidate: float | None
    """Mean over tasks; None without a task that has the metric."""
    champion: float | None
    e_value: float | None = None
    """Evidence that the limit is kept, for metrics with bounds: a guard on them holds when it is shown to."""


class Evidence(_Record):
    """Everything that a decision was computed from, and why it is what it is."""

    reason: str
    """One sentence."""
    measured: Measured | None = None
    """The metric that must be better; None when nothing was compared."""
    guards: tuple[GuardCheck, ...] = ()
    evaluations: tuple[str, ...] = ()
    """The ``name:model`` of the candidate and of the champion."""
    revisions: tuple[int, ...] = ()
    """Of these evaluations."""
    canary: str = ""
    """Id of the canary that was judged; empty for a comparison of evaluations."""
    looks: int = 1
    """Decisions about this comparison, this one included."""
    pairs: dict[str, dict[Metric, tuple[float, float]]] = Field(
        default_factory=dict[str, dict[Metric, tuple[float, float]]]
    )
    """Task → metric → values of candidate and champion at the first look that counted the task. Later looks keep them,
    because an e-value that was seen must not change afterwards."""


class Judgement(_Record):
    """An outcome with its evidence."""

    outcome: PromotionOutcome
    evidence: Evidence


class Decision(_Record):
    """A stored decision."""

    id: int
    decided_at: datetime
    name: str
    """Of the model."""
    candidate: str
    """``name@version``."""
    champion: str
    """``name@version`` before the decision; empty when there was none."""
    rule: Promotion | None
    """None when no rule was asked: a rollback by hand, or a deployment without a condition."""
    outcome: PromotionOutcome
    evidence: Evidence
    job_id: str | None
    """The job that decided; None for the command line, the page or the gateway."""
