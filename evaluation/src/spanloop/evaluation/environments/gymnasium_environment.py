"""Environments of Gymnasium (https://gymnasium.farama.org), whose action is one argument of one tool."""

import importlib
import json
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from pydantic import JsonValue, PrivateAttr

from spanloop.foundation.errors import ConfigurationError

from .base import Action, Environment, EnvironmentFailedError, Fields, StepResult, Tool

_TOOL = "act"


class GymnasiumEnvironment(Environment):
    """An environment of Gymnasium: the tool ``act`` takes its action."""

    summary: ClassVar[str] = (
        "An environment of Gymnasium, of any package that registers one. The tool `act` takes the action. "
        "`pip install '/path/to/spanloop[gymnasium]'`."
    )

    id: str
    """Name in Gymnasium's registry, such as ``FrozenLake-v1``; ``MODULE:NAME`` imports the module first."""
    kwargs: str = "{}"
    """Arguments of ``gymnasium.make``, as a JSON object; the task's field ``kwargs`` wins, key by key."""
    actions: str = ""
    """Names of the actions of a discrete space, from 0 on, separated by commas; empty lets the agent send numbers."""
    description: str = "Take an action."
    """What the tool does, for the model."""
    text: str = ""
    """Show the environment's ANSI rendering with each observation: ``ansi``; empty shows the observation alone."""

    _env: Any = PrivateAttr(default=None)

    @property
    def env(self) -> Any:
        """The environment of Gymnasium."""
        return self._env

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Make the environment and start its episode with the task's seed, or with the attempt's."""
        gymnasium = _gymnasium()
        kwargs = {**_object(self.kwargs), **_object(task.get("kwargs") or {})}
        if self.text:
            kwargs["render_mode"] = self.text
        self._env = gymnasium.make(self.id, **kwargs)
        given = task.get("seed")
        observation, _ = self._env.reset(seed=given if isinstance(given, int) else seed)
        return self.describe(observation)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tool that takes an action of the environment's action space."""
        schema = action_schema(self._env.action_space, self._names())
        parameters: dict[str, JsonValue] = {
            "type": "object",
            "properties": {"action": schema},
            "required": ["action"],
            "additionalProperties": False,
        }
        return (Tool(_TOOL, self.description, parameters),)

    def step(self, action: Action) -> StepResult:
        """Take an action."""
        value: Any = action.arguments["action"]
        names = self._names()
        if names and isinstance(value, str):
            value = names.index(value) + int(getattr(self._env.action_space, "start", 0))
        observation, reward, terminated, truncated, info = self._env.step(_native(self._env.action_space, value))
        success = cast("Mapping[str, object]", info).get("is_success")
        return StepResult(
            self.describe(observation),
            reward=float(reward),
            done=bool(terminated or truncated),
            truncated=bool(truncated),
            success=None if success is None else bool(success),
        )

    def close(self) -> None:
        """Close the environment."""
        if self._env is not None:
            self._env.close()

    def _names(self) -> list[str]:
        return [name.strip() for name in self.actions.split(",") if name.strip()]

    def describe(self, observation: object) -> JsonValue:
        """Return what the agent is shown of an observation; override it to put it into words."""
        value = _json_value(observation)
        if not self.text:
            return value
        return f"{self._env.render()}\nobservation: {json.dumps(value)}"


def _gymnasium() -> Any:
    try:
        return importlib.import_module("gymnasium")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Environment 'gymnasium' needs the package gymnasium, which is not installed.",
            next_step="pip install '/path/to/spanloop[gymnasium]'",
        ) from error


def action_schema(space: Any, names: list[str]) -> dict[str, JsonValue]:
    """Return the JSON Schema of an action of a space.

    Raises:
        EnvironmentFailedError: The space has no schema.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        start, count = int(space.start), int(space.n)
        if names and len(names) != count:
            raise EnvironmentFailedError(f"actions names {len(names)} actions, and the environment has {count}")
        if names:
            return {"type": "string", "enum": list(names)}
        return {"type": "integer", "minimum": start, "maximum": start + count - 1}
    if kind == "MultiBinary":
        return {"type": "array", "items": {"type": "integer", "enum": [0, 1]}, "minItems": int(space.n)}
    if kind == "MultiDiscrete":
        return {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": len(space.nvec)}
    if kind == "Box" and len(space.shape) == 1:
        return {"type": "array", "items": {"type": "number"}, "minItems": int(space.shape[0])}
    if kind == "Text":
        return {"type": "string", "minLength": int(space.min_length), "maxLength": int(space.max_length)}
    raise EnvironmentFailedError(f"its action space {space} has no tool; wrap it in one of Gymnasium's wrappers")


def _native(space: Any, value: Any) -> Any:
    """Return an action as the space has it: numbers of arrays have its type."""
    if not isinstance(value, list):
        return value
    numpy = importlib.import_module("numpy")
    return numpy.asarray(value, dtype=space.dtype)


def _json_value(value: object) -> JsonValue:
    to_list = getattr(value, "tolist", None)
    if to_list is not None:
        return cast("JsonValue", to_list())
    if isinstance(value, Mapping):
        return {str(name): _json_value(item) for name, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in cast("list[object]", value)]
    return cast("JsonValue", value)


def _object(value: object) -> dict[str, Any]:
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise EnvironmentFailedError(f"kwargs is {value!r:.80}, expected a JSON object")
    return cast("dict[str, Any]", found)
