"""An environment on a server that speaks the protocol over HTTP, in any language, on any machine."""

import os
from typing import Any, Final

import httpx
from pydantic import Field, JsonValue, PrivateAttr

from .base import Action, Environment, EnvironmentFailedError, Fields, StepResult, Tool
from .messages import Start, json_object, start_of_json, step_of_json

_ERROR_CHARACTERS: Final = 300


class HttpEnvironment(Environment):
    """An environment behind a URL that speaks spanloop's protocol (docs/reference/environments.md)."""

    url: str
    """Base URL of the server, such as ``http://127.0.0.1:9000``."""
    key_env: str = ""
    """The environment variable that holds the server's key; empty sends none."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Longest time of one call; the limits of ``[environment]`` count besides."""

    _client: httpx.Client | None = PrivateAttr(default=None)
    _session: str = PrivateAttr(default="")
    _start: Start | None = PrivateAttr(default=None)

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Start an episode there."""
        key = os.environ.get(self.key_env, "") if self.key_env else ""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=self.url, headers=headers, timeout=self.timeout_s, trust_env=False)
        body = self._post("reset", {"task": dict(task), "seed": seed})
        self._start = start_of_json(body)
        session = body.get("session")
        if not isinstance(session, str) or not session:
            raise EnvironmentFailedError(f"reset of {self.url} gave session {session!r:.60}, expected text")
        self._session = session
        return self._start.observation

    @property
    def takes_messages(self) -> bool:
        """Whether the server takes text."""
        return self._start is not None and self._start.takes_messages

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools that the server names."""
        return () if self._start is None else self._start.tools

    def step(self, action: Action) -> StepResult:
        """Take an action there."""
        sent = {"message": action.message} if not action.tool else {"tool": action.tool, "arguments": action.arguments}
        return step_of_json(self._post("step", {"session": self._session, **sent}))

    def close(self) -> None:
        """Close the episode there; a server that is gone has closed it."""
        if self._client is None:
            return
        try:
            if self._session:
                self._client.post("/v1/close", json={"session": self._session})
        except httpx.HTTPError:
            return
        finally:
            self._client.close()

    def _post(self, call: str, body: dict[str, Any]) -> Any:
        """Return the JSON of an answer.

        Raises:
            EnvironmentFailedError: There is none.
        """
        if self._client is None:
            raise EnvironmentFailedError("no episode was started")
        try:
            response = self._client.post(f"/v1/{call}", json=body)
        except httpx.HTTPError as error:
            raise EnvironmentFailedError(f"{call} of {self.url}: {type(error).__name__}: {error}") from error
        try:
            answer: Any = response.json()
        except ValueError as error:
            shown = response.text[:80]
            raise EnvironmentFailedError(
                f"{call} of {self.url} answered status {response.status_code} and {shown!r}, expected JSON"
            ) from error
        if response.is_error:
            problem = (json_object(answer) or {}).get("error", answer)
            text = (json_object(problem) or {}).get("message", problem)
            raise EnvironmentFailedError(
                f"{call} of {self.url} answered status {response.status_code}: {str(text)[:_ERROR_CHARACTERS]}"
            )
        return answer
