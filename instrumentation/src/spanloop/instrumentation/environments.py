"""``environment()``: act in the environment of the current attempt, over HTTP.

Invariant: each tool call is a span with its arguments, answer and reward; what the agent sends and gets is not changed.
Unlike tracing, acting is the app's work: when the environment cannot go on, `EnvironmentUnavailableError` is raised.
"""

from __future__ import annotations

import http.client
import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from opentelemetry import trace

from spanloop.instrumentation.exception_guard import guard
from spanloop.instrumentation.rewards import reward
from spanloop.instrumentation.tools import span_of_call
from spanloop.semconv import attributes as names
from spanloop.semconv.environment import ENVIRONMENT_SESSION_ENV, ENVIRONMENT_URL_ENV, SEED_ENV
from spanloop.semconv.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_TIMEOUT_S: Final = 900.0
"""The environment's own limits end a call earlier."""


class EnvironmentUnavailableError(ConnectionError):
    """The environment cannot go on: its service is unavailable. The fault is not the agent's."""


class Answer(NamedTuple):
    """What the environment answers to an action."""

    observation: Any
    """Text, or a JSON value."""
    reward: float | None
    """For this step."""
    done: bool
    """Whether the episode is over."""
    error: bool
    """Whether the action was refused."""

    @property
    def text(self) -> str:
        """The observation as text, for a message to the model."""
        return _text(self.observation)


class EnvironmentSession:
    """An episode in an environment; a context manager. One thread at a time may use it."""

    def __init__(self, url: str, session: str, key: str, task: Mapping[str, Any] | None, seed: int) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path.rstrip("/")
        self._key = key
        self._is_assigned = bool(session)
        started = self._post("reset", {"session": session} if session else {"task": dict(task or {}), "seed": seed})
        self._session: str = started["session"]
        self.observation: Any = started["observation"]
        """The newest one."""
        self.tools: list[dict[str, Any]] = started["tools"]
        """In the form of OpenAI's API."""
        self.takes_messages: bool = started["takes_messages"]
        """Whether `say` may be used."""
        self.done = False
        """Whether the episode is over."""
        self.reward: float | None = None
        """Sum of the rewards so far; None without any."""

    @property
    def text(self) -> str:
        """The newest observation as text, for a message to the model."""
        return _text(self.observation)

    def step(self, tool: str, arguments: Mapping[str, Any] | str | None = None) -> Answer:
        """Call a tool of the environment.

        Args:
            tool: Its name.
            arguments: Its arguments, or their JSON as a model writes it. Text that is no JSON object is an answer with
                ``error``.

        Raises:
            EnvironmentUnavailableError: The environment cannot go on.
        """
        try:
            values = json.loads(arguments) if isinstance(arguments, str) else dict(arguments or {})
        except ValueError:
            values = None
        with span_of_call(tool, arguments if values is None else values) as span:
            if isinstance(values, dict):
                answer = self._act({"tool": tool, "arguments": values})
            else:
                answer = Answer(f"Error: the arguments of {tool} are no JSON object.", None, self.done, error=True)
            span.set_result(answer.text)
            _record(answer)
            if answer.error:
                span.fail(answer.text)
        return answer

    def say(self, text: str) -> Answer:
        """Send text to whoever is in the environment; the answer is the user's next message.

        Raises:
            EnvironmentUnavailableError: The environment cannot go on.
        """
        return self._act({"message": text})

    def close(self) -> None:
        """Close the episode; an attempt that the task runner did not start gets the sum of its rewards."""
        try:
            outcome = self._post("close", {"session": self._session})
        except EnvironmentUnavailableError:
            outcome = {}
        if not self._is_assigned and outcome.get("reward") is not None:
            reward(outcome["reward"], explanation=str(outcome.get("reason") or ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _act(self, action: dict[str, Any]) -> Answer:
        body = self._post("step", {"session": self._session, **action})
        answer = Answer(body["observation"], body.get("reward"), bool(body.get("done")), bool(body.get("error")))
        self.observation, self.done = answer.observation, answer.done
        if answer.reward is not None:
            self.reward = (self.reward or 0.0) + answer.reward
        return answer

    def _post(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Content-Type": "application/json", "Connection": "close"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            self._connection.request("POST", f"{self._path}/v1/{call}", json.dumps(body), headers)
            response = self._connection.getresponse()
            answer: Any = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EnvironmentUnavailableError(
                f"the environment is unavailable: {call}: {type(error).__name__}: {error}"
            ) from error
        finally:
            # The next call opens it again: a model's turn may take longer than a server keeps an idle connection
            self._connection.close()
        if response.status >= http.client.BAD_REQUEST:
            raise EnvironmentUnavailableError(
                f"the environment is unavailable: {call} has status {response.status}: {_message(answer)}"
            )
        return dict(answer)


def environment(
    url: str = "", *, key: str = "", task: Mapping[str, Any] | None = None, seed: int | None = None
) -> EnvironmentSession:
    """Start an episode of the current attempt, as a context manager.

    Under ``spanloop run`` the environment is that of the attempt, which has begun with the attempt's task and seed.

    Args:
        url: Base URL of an environment; empty is that of the attempt.
        key: Of the environment; the attempt's needs none.
        task: Fields of the task; those of the attempt's environment are given.
        seed: Of the episode; None takes the attempt's.

    Raises:
        ConfigurationError: The attempt has no environment, and no ``url`` is given.
        EnvironmentUnavailableError: The episode cannot be started.
    """
    session = "" if url else os.environ.get(ENVIRONMENT_SESSION_ENV, "")
    url = url or os.environ.get(ENVIRONMENT_URL_ENV, "")
    if not url:
        raise ConfigurationError(
            "environment() has no environment: this process is no attempt of a run with one.",
            next_step="Give its URL, or run the agent with: spanloop run TASKS --agent … --environment NAME",
        )
    if seed is None:
        seed = int(os.environ.get(SEED_ENV) or 0)
    return EnvironmentSession(url, session, key, task, seed)


@guard("a step's reward was not recorded", None)
def _record(answer: Answer) -> None:
    span = trace.get_current_span()
    if answer.reward is not None:
        span.set_attribute(names.SPANLOOP_ENVIRONMENT_REWARD, answer.reward)
    span.set_attribute(names.SPANLOOP_ENVIRONMENT_DONE, answer.done)


def _message(answer: Any) -> object:
    """Return the message of an error's body, else the body."""
    try:
        return answer["error"]["message"]
    except (KeyError, TypeError):
        return answer


def _text(observation: Any) -> str:
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)
