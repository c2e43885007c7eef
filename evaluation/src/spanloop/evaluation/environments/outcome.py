"""The outcome of an episode in an environment: what its rewards add up to, and whether it succeeded."""

from collections.abc import Mapping
from typing import NamedTuple, cast

from .base import StepResult


class Outcome(NamedTuple):
    """What came of an episode."""

    reward: float | None = None
    """Sum of the rewards of its steps; None when the environment gave none."""
    success: bool | None = None
    """The last word of the environment; None when it said nothing."""
    reason: str = ""
    """One sentence that explains the reward."""
    components: Mapping[str, float] = {}
    """Name → sum of the contributions to the reward."""
    steps: int = 0
    done: bool = False
    """Whether the environment ended the episode, and not the agent."""
    failure: str = ""
    """Why the environment could not go on, in one sentence with its next step; empty when it could."""

    def after(self, result: StepResult) -> "Outcome":
        """Return the outcome with one more step."""
        components = dict(self.components)
        for name, value in result.components.items():
            components[name] = components.get(name, 0.0) + value
        given = [value for value in (self.reward, result.reward) if value is not None]
        return Outcome(
            reward=sum(given) if given else None,
            success=self.success if result.success is None else result.success,
            reason=result.reason or self.reason,
            components=components,
            steps=self.steps + 1,
            done=result.done,
        )

    @classmethod
    def of_json(cls, value: object) -> "Outcome | None":
        """Return the outcome in a ledger's JSON list; None where there is none."""
        return cls(*cast("list[object]", value)) if isinstance(value, list) else None  # type: ignore[arg-type]
