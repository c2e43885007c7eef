"""An environment: guess a number, with a hint after each guess."""

import random
from typing import ClassVar

from pydantic import Field, JsonValue, PrivateAttr

from spanloop.evaluation.environments import Action, Environment, Fields, StepResult, Tool


class HigherLower(Environment):
    """Guess a number; the environment says whether it is higher or lower."""

    summary: ClassVar[str] = "Guess a number; the environment says whether it is higher or lower."

    most: int = Field(default=100, ge=1)
    """Largest number."""

    _number: int = PrivateAttr(default=0)

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Choose a number."""
        self._number = random.Random(f"{task.get('task_id')} {seed}").randint(1, self.most)
        return f"Guess my number, from 1 to {self.most}."

    def tools(self) -> tuple[Tool, ...]:
        """Return the tool ``guess``."""
        number: JsonValue = {"type": "integer", "minimum": 1, "maximum": self.most}
        return (Tool("guess", "Guess the number.", {"properties": {"number": number}, "required": ["number"]}),)

    def step(self, action: Action) -> StepResult:
        """Compare a guess with the number."""
        guess = int(str(action.arguments["number"]))
        if guess == self._number:
            return StepResult("That is it.", reward=1.0, done=True, reason="The number was guessed.")
        return StepResult("Higher." if self._number > guess else "Lower.", reward=0.0)
