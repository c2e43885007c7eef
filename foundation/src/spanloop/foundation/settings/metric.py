"""What evaluations measure and promotions compare, stored as its string value."""

from enum import StrEnum


class Metric(StrEnum):
    """What an evaluation measures of an attempt, and a promotion compares."""

    SUCCESS = "success"
    """1 when the attempt succeeded, else 0."""
    REWARD = "reward"
    """The grader's score, else the episode's reward."""
    CRASHES = "crashes"
    """1 when the attempt crashed, ran out of time or never ended, else 0."""
    ERRORS = "errors"
    """1 when the attempt has a failure that it did not recover from, else 0."""
    LATENCY = "latency_s"
    """Seconds from the attempt's begin to its end."""
    TOKENS = "tokens"
    """Prompt and completion tokens of its model calls."""
    STEPS = "steps"
    """Its model calls that acted."""
    TOOL_SELECTION = "tool_selection"
    """Its calls of the tools of the task's reference calls, by the larger number of both kinds of calls."""
    PLAN_SUCCESS = "plan_success"
    """1 when it made all reference calls in their order, with their arguments, else 0."""
    STEP_EFFICIENCY = "step_efficiency"
    """Number of reference calls by the larger number of both kinds of calls when it succeeded, else 0."""

    @property
    def is_share(self) -> bool:
        """Whether each attempt has a value from 0 to 1."""
        return self not in {Metric.REWARD, Metric.LATENCY, Metric.TOKENS, Metric.STEPS}

    @property
    def is_better_when_higher(self) -> bool:
        """Whether more of it is better."""
        return self not in {Metric.CRASHES, Metric.ERRORS, Metric.LATENCY, Metric.TOKENS, Metric.STEPS}
