"""Two environments on OpenEnv's own server, started in an environment that has openenv-core: KIND PORT."""
# ruff: noqa: ARG002

import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    """Guess the number."""

    number: int


class Hint(Observation):
    hint: str


class Guessing(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()
        self._goal = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Hint:
        self._goal = (seed or 0) + int(kwargs.get("offset", 0))
        self._state = State(episode_id=episode_id)
        return Hint(hint="Guess.")

    def step(self, action: Guess, timeout_s: float | None = None, **kwargs: Any) -> Hint:
        if action.number < 0:
            raise ValueError("negative")
        self._state.step_count += 1
        found = action.number == self._goal
        return Hint(hint="found" if found else "other", reward=float(found), done=found)

    @property
    def state(self) -> State:
        return self._state


mcp = FastMCP("sums")


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Sums(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__(mcp)
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        return Observation(metadata={"status": "ready"})

    def _step_impl(self, action: Action, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise ValueError("only tools")

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    kind, port = sys.argv[1:]
    app = (
        create_fastapi_app(Guessing, Guess, Hint)
        if kind == "guess"
        else create_fastapi_app(Sums, CallToolAction, CallToolObservation)
    )
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")
