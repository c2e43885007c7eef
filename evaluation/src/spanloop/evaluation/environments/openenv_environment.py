"""Environments that OpenEnv serves (https://github.com/meta-pytorch/OpenEnv), over its WebSocket protocol.

Sessions are WebSockets at ``/ws``: ``{"type": "reset" | "step" | "state" | "close", "data": …}`` is answered by
``{"type": "observation" | "state" | "error", "data": …}``. An observation has ``observation``, ``reward`` and ``done``
(openenv-core 0.3, ``openenv/core/env_server/types.py``). An environment of MCP tools lists them in answer to the action
``{"type": "list_tools"}`` and takes ``{"type": "call_tool"}``; another one has the JSON Schema of its action at
``/schema``, which becomes the tool ``act``.
"""

import importlib
import json
import os
from typing import Any, ClassVar, Final, cast
from urllib.parse import urlsplit

import httpx
from pydantic import Field, JsonValue, PrivateAttr

from spanloop.foundation.errors import ConfigurationError

from .base import Action, Environment, EnvironmentFailedError, Fields, StepResult, Tool
from .messages import json_object

_TOOL: Final = "act"
_MOST_BYTES: Final = 4 << 20
_CLOSE_TIMEOUT_S: Final = 2.0
_ERROR_CHARACTERS: Final = 500
_MCP_ACTIONS: Final = frozenset({"Action", "ListToolsAction", "CallToolAction"})
"""Titles of action classes for which OpenEnv's server takes MCP actions (``serialization.deserialize_action``)."""


class _RefusedActionError(Exception):
    """The server did not accept the form of an action."""


class OpenEnvEnvironment(Environment):
    """An environment on a server of OpenEnv."""

    summary: ClassVar[str] = (
        "An environment on a server of OpenEnv, without its package. MCP tools are tools; another environment has the "
        "tool `act`, whose arguments are its action. `pip install '/path/to/spanloop[openenv]'`."
    )

    url: str
    """Base URL of the server, such as ``http://127.0.0.1:8000``."""
    key_env: str = ""
    """The environment variable that holds the server's key (``Authorization: Bearer``); empty sends none."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest time of one call; the limits of ``[environment]`` count besides."""

    _socket: Any = PrivateAttr(default=None)
    _tools: tuple[Tool, ...] = PrivateAttr(default=())
    _is_mcp: bool = PrivateAttr(default=False)

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Start an episode; the task's field ``reset`` holds further arguments of the environment's reset."""
        key = os.environ.get(self.key_env, "") if self.key_env else ""
        self._socket = _connect(self.url, key, self.timeout_s)
        data: dict[str, Any] = {"seed": seed, **(json_object(task.get("reset")) or {})}
        started = self._observation("reset", data)
        schema = self._action_schema(key)
        self._is_mcp = schema.get("title") in _MCP_ACTIONS
        self._tools = self._mcp_tools() if self._is_mcp else (_action_tool(schema),)
        return cast("JsonValue", started["observation"])

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools of the environment."""
        return self._tools

    def step(self, action: Action) -> StepResult:
        """Take an action."""
        data: dict[str, Any] = dict(action.arguments)
        if self._is_mcp:
            data = {"type": "call_tool", "tool_name": action.tool, "arguments": dict(action.arguments)}
        try:
            answer = self._observation("step", data)
        except _RefusedActionError as refused:
            return StepResult(str(refused), error=True)
        observation, is_error = _mcp_result(answer["observation"]) if self._is_mcp else (answer["observation"], False)
        reward = answer.get("reward")
        return StepResult(
            observation,
            reward=None if reward is None else float(reward),
            done=bool(answer.get("done")),
            error=is_error,
        )

    def close(self) -> None:
        """End the session there."""
        if self._socket is not None:
            try:
                self._socket.send(json.dumps({"type": "close"}))
                self._socket.close()
            except Exception:  # noqa: BLE001 - whatever the socket raises, the server ends the session with it
                return

    def _mcp_tools(self) -> tuple[Tool, ...]:
        observation = self._observation("step", {"type": "list_tools"})["observation"]
        try:
            return tuple(
                Tool(str(tool["name"]), str(tool.get("description", "")), tool["input_schema"])
                for tool in observation["tools"]
            )
        except (KeyError, TypeError) as error:
            raise EnvironmentFailedError(f"{self.url} lists its tools as {observation!r:.80}") from error

    def _action_schema(self, key: str) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with httpx.Client(timeout=self.timeout_s, trust_env=False, headers=headers) as client:
                schema: Any = client.get(f"{self.url.rstrip('/')}/schema").raise_for_status().json()["action"]
            return dict(schema)
        except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentFailedError(
                f"{self.url}/schema gives no schema of an action: {type(error).__name__}: {error}"
            ) from error

    def _observation(self, call: str, data: dict[str, Any]) -> dict[str, Any]:
        try:
            self._socket.send(json.dumps({"type": call, "data": data}))
            answer: Any = json.loads(self._socket.recv(timeout=self.timeout_s))
        except Exception as error:
            raise EnvironmentFailedError(f"{call} of {self.url}: {type(error).__name__}: {error}") from error
        message = json_object(answer) or {}
        body = json_object(message.get("data"))
        if body is not None and message.get("type") == "error":
            if call == "step" and body.get("code") == "VALIDATION_ERROR":
                raise _RefusedActionError(f"Invalid action: {json.dumps(body.get('errors', ''))[:_ERROR_CHARACTERS]}")
            raise EnvironmentFailedError(f"{call} of {self.url}: {body.get('message')} ({body.get('code')})")
        if body is None or "observation" not in body:
            raise EnvironmentFailedError(f"{call} of {self.url} answered {answer!r:.80}, expected an observation")
        return body


def _mcp_result(observation: JsonValue) -> tuple[JsonValue, bool]:
    """Return the text of an MCP tool's result, else the result itself, and whether the call failed."""
    body = json_object(observation) or {}
    if "tool_name" not in body:
        return observation, False
    if (error := json_object(body.get("error"))) is not None:
        return f"Error: {error.get('message', error)}", True
    result = json_object(body.get("result"))
    if result is None:
        return body.get("result"), False
    content: object = result.get("content")
    parts = (json_object(part) or {} for part in cast("list[object]", content if isinstance(content, list) else []))
    texts = [str(part["text"]) for part in parts if "text" in part]
    return "\n".join(texts) if texts else result, bool(result.get("is_error"))


def _action_tool(schema: dict[str, Any]) -> Tool:
    properties = json_object(schema.get("properties")) or {}
    own = {name: each for name, each in properties.items() if name != "metadata"}
    return Tool(_TOOL, str(schema.get("description") or "Take an action."), {**schema, "properties": own})


def _connect(url: str, key: str, timeout_s: float) -> Any:
    try:
        client = importlib.import_module("websockets.sync.client")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "Environment 'openenv' needs the package websockets, which is not installed.",
            next_step="pip install '/path/to/spanloop[openenv]'",
        ) from error
    parts = urlsplit(url.rstrip("/"))
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    headers = {"Authorization": f"Bearer {key}"} if key else None
    try:
        return client.connect(
            f"{scheme}://{parts.netloc}{parts.path}/ws",
            open_timeout=timeout_s,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=_MOST_BYTES,
            additional_headers=headers,
            proxy=None,
        )
    except Exception as error:
        raise EnvironmentFailedError(f"{url}/ws cannot be reached: {type(error).__name__}: {error}") from error
