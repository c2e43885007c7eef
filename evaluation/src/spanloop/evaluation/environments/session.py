"""One episode of an agent in an environment, with its limits.

Invariant: after a failure nothing reaches the environment any more, and each further step says why. Steps come one at
a time. What the agent sends is checked before the environment sees it: a wrong tool or wrong arguments are a mistake of
the agent's, which the answer explains.
"""

import secrets
import threading
from collections.abc import Callable
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from spanloop.foundation.settings import EnvironmentSettings

from .base import Action, EnvironmentFailedError, Fields, StepResult, Tool
from .messages import Start, start_of_json, step_of_json
from .outcome import Outcome
from .process import EnvironmentProcess

_CLOSE_TIMEOUT_S: Final = 10.0
_KEY_BYTES: Final = 24
_NOT_STARTED: Final = Start("", ())


class Session:
    """An episode; `EnvironmentPool.open` makes one.

    Args:
        process: Runs the environment for this session alone.
        settings: The limits.
        should_stop: Interrupts whatever the environment does.
    """

    def __init__(
        self, process: EnvironmentProcess, settings: EnvironmentSettings, should_stop: Callable[[], bool]
    ) -> None:
        self.key: Final = secrets.token_urlsafe(_KEY_BYTES)
        """Names the session, and lets in whoever knows it."""
        self.process: Final = process
        self.start = _NOT_STARTED
        self.outcome = Outcome()
        self._settings: Final = settings
        self._should_stop: Final = should_stop
        self._lock: Final = threading.Lock()
        self._tools: dict[str, Any] = {}
        self._where = ""
        self._is_closed = False

    def reset(self, task: Fields, seed: int, timeout_s: float | None = None) -> None:
        """Start the episode, within ``timeout_s``; None is the limit of the settings."""
        self._where = f"task {task.get('task_id', '')!r}, seed {seed}"
        limit_s = self._settings.reset_timeout_s if timeout_s is None else timeout_s
        answer = self.process.ask("reset", limit_s, self._should_stop, task=dict(task), seed=seed)
        if isinstance(answer, str):
            self._fail(answer)
            return
        try:
            self.start = start_of_json(answer)
            self._tools = {tool.name: _validator(tool) for tool in self.start.tools}
        except EnvironmentFailedError as error:
            self._fail(str(error))

    def step(self, action: Action) -> StepResult:
        """Take an action.

        Raises:
            EnvironmentFailedError: The environment failed, now or before, or the session is closed.
        """
        with self._lock:
            if self._is_closed:
                raise EnvironmentFailedError("The session is closed.")
            if self.outcome.failure:
                raise EnvironmentFailedError(self.outcome.failure)
            if self.outcome.done:
                return StepResult("The episode is over.", done=True, error=True)
            result = self._limited(self._refused(action) or self._taken(action))
            self.outcome = self.outcome.after(result)
            return result

    def close(self) -> None:
        """Close the episode; waits for a step that is being taken."""
        with self._lock:
            self._is_closed = True
            if self.process.is_healthy:
                self.process.ask("close", _CLOSE_TIMEOUT_S)

    def _taken(self, action: Action) -> StepResult:
        answer = self.process.ask(
            "step",
            self._settings.step_timeout_s,
            self._should_stop,
            tool=action.tool,
            arguments=dict(action.arguments),
            message=action.message,
        )
        if isinstance(answer, str):
            raise EnvironmentFailedError(self._fail(answer))
        try:
            return step_of_json(answer)
        except EnvironmentFailedError as error:
            raise EnvironmentFailedError(self._fail(str(error))) from error

    def _refused(self, action: Action) -> StepResult | None:
        """Return the answer to an action that the environment must not see."""
        if not action.tool:
            return None if self.start.takes_messages else self._mistake("Call a tool; text is not read here.")
        if action.tool not in self._tools:
            return self._mistake(f"There is no tool {action.tool!r}.")
        problem = next(iter(self._tools[action.tool].iter_errors(dict(action.arguments))), None)
        if problem is None:
            return None
        return self._mistake(f"Invalid arguments of {action.tool}: {problem.json_path}: {problem.message}.")

    def _mistake(self, text: str) -> StepResult:
        names = f" Tools: {', '.join(self._tools)}." if self._tools else ""
        return StepResult(f"Error: {text}{names}", error=True)

    def _limited(self, result: StepResult) -> StepResult:
        if result.done or self.outcome.steps + 1 < self._settings.most_steps:
            return result
        return result._replace(done=True, truncated=True)

    def _fail(self, why: str) -> str:
        """Remember why the environment cannot go on; return it as a sentence."""
        failure = (
            f"The environment {self._settings.name!r} failed ({self._where}, step {self.outcome.steps + 1}): "
            f"{why.rstrip('.')}. Next: try the environment alone with this task and seed."
        )
        self.outcome = self.outcome._replace(failure=failure)
        return failure


def _validator(tool: Tool) -> Any:
    """Return the validator of a tool's arguments.

    Raises:
        EnvironmentFailedError: The tool's schema is invalid.
    """
    try:
        Draft202012Validator.check_schema(dict(tool.parameters))
    except SchemaError as error:
        raise EnvironmentFailedError(f"the schema of tool {tool.name!r} is invalid: {error.message}") from error
    return Draft202012Validator(dict(tool.parameters))
