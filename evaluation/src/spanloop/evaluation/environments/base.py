"""The form of an environment: options, and the calls ``reset``, ``step`` and ``close`` of one episode.

Invariant: an object serves one episode, in a process of its own. The names of the fields are those of the protocol over
HTTP (docs/reference/environments.md), so that an environment is the same whether it is a class or a server.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from spanloop.foundation.plugins import Extension

Fields = Mapping[str, JsonValue]


class EnvironmentFailedError(Exception):
    """The environment cannot go on; the fault is not the agent's. Its text is one sentence."""


class Tool(NamedTuple):
    """An action that the agent may take."""

    name: str
    description: str
    parameters: Fields
    """JSON Schema (2020-12) of the arguments, which are an object."""


class Action(NamedTuple):
    """What the agent does in one step."""

    tool: str
    """Empty for a message."""
    arguments: Fields
    message: str = ""
    """Text to whoever is in the environment."""


class StepResult(NamedTuple):
    """What the environment answers to an action."""

    observation: JsonValue
    """Text, or a JSON value that the agent shows to its model as text."""
    reward: float | None = None
    """For this step; None gives none. The episode's reward is the sum."""
    done: bool = False
    """Whether the episode is over."""
    truncated: bool = False
    """Whether it is over because of a limit, and not because a goal was met or missed."""
    error: bool = False
    """Whether the environment refused the action: a mistake of the agent's."""
    success: bool | None = None
    """Whether the episode succeeded, as far as the environment knows; None leaves it to the reward."""
    reason: str = ""
    """One sentence that explains the reward."""
    components: Mapping[str, float] = {}
    """Name → contribution to the reward; they are summed up over the episode."""


class Environment(Extension):
    """An environment with its options; keep an episode's state in private attributes.

    Its ``summary`` says what the agent does there.
    """

    @property
    def takes_messages(self) -> bool:
        """Whether the agent may send text, and not only call tools."""
        return False

    def tools(self) -> Sequence[Tool]:
        """Return the actions of the episode that was started."""
        return ()

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Start the episode and return the first observation.

        Args:
            task: The fields of the task; with ``task_id``.
            seed: Everything random follows it: equal task and seed give an equal episode.

        Raises:
            EnvironmentFailedError: The episode cannot be started. Any other exception means the same.
        """
        raise NotImplementedError

    def step(self, action: Action) -> StepResult:
        """Take an action; arguments of a tool satisfy its schema.

        Raises:
            EnvironmentFailedError: The environment cannot go on. Any other exception means the same.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what the episode holds; called once, also after a failure."""
