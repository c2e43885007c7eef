"""``[promotion]``: the rule that decides whether a candidate becomes the champion.

Invariant: a rule that can never promote, because its limits contradict each other, is refused before anything is
compared.
"""

from collections.abc import Iterator
from typing import Final, Self

from pydantic import Field, field_validator, model_validator

from spanloop.foundation.settings.metric import Metric

from .section import Section, VariableSection


class Guard(Section):
    """``[promotion.guards.METRIC]``: what a candidate must keep to, whatever it gains elsewhere."""

    at_least: float | None = Field(default=None, allow_inf_nan=False)
    """The candidate's mean is at least this."""
    at_most: float | None = Field(default=None, allow_inf_nan=False)
    """The candidate's mean is at most this."""
    max_increase: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """It is at most this much above the champion's; equal versions differ by chance, so 0 is refused."""
    max_decrease: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """It is at most this much below the champion's."""
    max_ratio: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """It is at most so many times the champion's."""

    @model_validator(mode="after")
    def _has_limits_that_can_be_met(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("has no limit: set at_least, at_most, max_increase, max_decrease or max_ratio")
        if self.at_least is not None and self.at_most is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least = {self.at_least:g} contradicts at_most = {self.at_most:g}")
        return self


DEFAULT_GUARDS: Final = {Metric.CRASHES: Guard(at_most=0.25)}


class Promotion(VariableSection):
    """``[promotion]``: when a candidate is promoted."""

    metric: Metric = Metric.SUCCESS
    """What must be better: success, reward, plan_success, tool_selection or step_efficiency."""
    margin: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """By how much, on average over tasks: 0.02 asks for two points of success."""
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """Probability that a candidate that is not better is promoted, over all looks at the growing evidence."""
    min_tasks: int = Field(default=20, ge=1)
    """No promotion on fewer tasks, or in a canary on fewer rewarded sessions of the candidate."""
    max_tasks: int = Field(default=450, ge=1)
    """The champion is kept when so many tasks have not shown that the candidate is better."""
    max_sessions: int = Field(default=2000, ge=1)
    """A canary ends, and the champion is kept, after so many rewarded sessions of the candidate."""
    feedback_s: float = Field(default=60.0, ge=0, allow_inf_nan=False)
    """A canary counts a session when its last call began so many seconds ago: feedback needs this time to arrive."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    """Smallest and largest reward that a task can have."""
    tolerance: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """A candidate that serves is rolled back when it is shown to be worse by more than this."""
    guards: dict[Metric, Guard] = Field(default_factory=dict[Metric, Guard], validate_default=True)
    """Limits on other metrics. Without a limit of your own, crashes must be at most 0.25."""

    @field_validator("guards")
    @classmethod
    def _with_default_guards(cls, guards: dict[Metric, Guard]) -> dict[Metric, Guard]:
        return DEFAULT_GUARDS | guards

    @model_validator(mode="after")
    def _can_promote(self) -> Self:
        for problem in self._problems():
            raise ValueError(problem)
        return self

    def bounds_of(self, metric: Metric) -> tuple[float, float] | None:
        """Return the smallest and the largest value of a metric; None for one that has no largest."""
        return self.reward_range if metric is Metric.REWARD else (0.0, 1.0) if metric.is_share else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value of the metric that must be better."""
        return self.bounds_of(self.metric) or (0.0, 1.0)

    def _problems(self) -> Iterator[str]:
        low, high = self.bounds
        if not self.metric.is_better_when_higher:
            yield f"metric = {self.metric}: less of it is better; make it a guard instead"
        if not self.reward_range[0] < self.reward_range[1]:
            yield f"reward_range = {list(self.reward_range)}: expected the smaller number first"
        if self.margin >= high - low:
            yield f"margin = {self.margin:g}: no {self.metric} from {low:g} to {high:g} can rise by more than that"
        if self.tolerance >= high - low:
            yield f"tolerance = {self.tolerance:g}: no {self.metric} from {low:g} to {high:g} can fall by more"
        for name, largest in (("max_tasks", self.max_tasks), ("max_sessions", self.max_sessions)):
            if self.min_tasks > largest:
                yield f"min_tasks = {self.min_tasks} contradicts {name} = {largest}"
        for metric, guard in self.guards.items():
            yield from (f"guards.{metric}: {problem}" for problem in self._problems_of_guard(metric, guard))

    def _problems_of_guard(self, metric: Metric, guard: Guard) -> Iterator[str]:
        if metric.is_share:
            for name, limit in (("at_least", guard.at_least), ("at_most", guard.at_most)):
                if limit is not None and not 0 < limit < 1:
                    yield f"{name} = {limit:g}: expected a share above 0 and below 1"
        if metric is not self.metric:
            return
        if guard.max_increase is not None and guard.max_increase <= self.margin:
            yield f"max_increase = {guard.max_increase:g} contradicts margin = {self.margin:g}: it must rise by more"
        if guard.max_ratio is not None and guard.max_ratio <= 1 and self.bounds[0] >= 0:
            yield f"max_ratio = {guard.max_ratio:g} contradicts metric = {metric}, which must rise"
        if guard.at_most is not None and guard.at_most <= self.bounds[0] + self.margin:
            yield f"at_most = {guard.at_most:g} contradicts margin = {self.margin:g}: it must rise by more"
