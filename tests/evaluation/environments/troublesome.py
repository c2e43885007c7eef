"""An environment that does what its task says, for tests of everything around it."""

import math
import os
import sys
import time
from typing import Any

from pydantic import JsonValue, PrivateAttr

from spanloop.evaluation.environments import Action, Environment, EnvironmentFailedError, StepResult, Tool


class Counter(Environment):
    """Count up to a goal."""

    goal: int = 2
    """Steps that are needed."""

    _count: int = PrivateAttr(default=0)
    _do: str = PrivateAttr(default="")

    def tools(self) -> list[Tool]:
        """Return the tool ``add``."""
        parameters: dict[str, Any] = {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        }
        return [Tool("add", "Add a number.", parameters)]

    def reset(self, task: Any, seed: int) -> JsonValue:
        """Return the goal."""
        self._do = str(task.get("do", ""))
        if self._do == "hang at reset":
            time.sleep(600)
        if self._do == "raise at reset":
            raise ValueError("the board is lost")
        return f"Count to {self.goal}, seed {seed}."

    def step(self, action: Action) -> StepResult:
        """Add, or do what the task says."""
        match self._do:
            case "hang":
                time.sleep(600)
            case "crash":
                sys.stderr.write("oh dear\n")
                os._exit(3)
            case "nonsense":
                return "42"  # type: ignore[return-value]
            case "no number":
                return StepResult("", reward=math.nan)
            case "raise":
                raise ZeroDivisionError("a reward that raises")
            case "give up":
                raise EnvironmentFailedError("the lake is dry")
            case "print":
                sys.stdout.write("x" * 100_000)
            case "huge":
                return StepResult("y" * 5_000_000)
            case _:
                pass
        self._count += int(str(action.arguments["number"]))
        done = self._count >= self.goal
        return StepResult(
            str(self._count),
            reward=float(done),
            done=done,
            components={"goal": float(done)},
            reason="The goal is reached." if done else "",
        )
