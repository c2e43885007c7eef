"""A simulated user: a script, or a language model with a goal that the agent does not see.

Invariant: a script is a function of its task and of what the agent said. A model's replies are cached, within its
budget of calls and money, so that a conversation that is repeated word for word is answered in the same way.
"""

import json
import re
from typing import Any, ClassVar, Final, cast

from pydantic import JsonValue, PrivateAttr

from spanloop.foundation.model_client import ModelCallError, ModelClient
from spanloop.foundation.settings import load_configuration
from spanloop.semconv.environment import default_data_dir

from .base import Action, Environment, EnvironmentFailedError, Fields, StepResult

_SUCCESS: Final = "[DONE]"
_FAILURE: Final = "[GIVE UP]"
_PROMPT: Final = """You play a user who talks to an assistant. Stay in this role and write only what the user says next.

What the user wants, which the assistant does not know:
{goal}

Give information only when the assistant asks for it. When the assistant has done what the user wants, write
{success}. When it clearly cannot or will not, write {failure}.

The conversation so far, as JSON:
{conversation}"""


class UserEnvironment(Environment):
    """A simulated user whom the agent sends messages."""

    summary: ClassVar[str] = (
        "A simulated user whom the agent sends messages. The task's field `script` holds a list of "
        '`{"when": REGEX, "say": TEXT, "reward": NUMBER, "done": BOOLEAN}`, of which the first that matches answers; '
        "or a model plays the user, with the goal in the field `goal`."
    )

    model: str = ""
    """Name of a model in ``[models]`` of spanloop.toml, which plays the user; empty follows the script."""
    opening: str = "question"
    """The task's field that holds the user's first message."""
    goal: str = "goal"
    """The task's field that holds what the user wants."""
    script: str = "script"
    """The task's field that holds the script."""
    otherwise: str = "I do not understand."
    """What the user says when nothing of the script matches."""

    _task: Fields = PrivateAttr(default_factory=dict[str, JsonValue])
    _messages: list[dict[str, str]] = PrivateAttr(default_factory=list[dict[str, str]])
    _client: ModelClient | None = PrivateAttr(default=None)

    @property
    def takes_messages(self) -> bool:
        """A user reads text."""
        return True

    def reset(self, task: Fields, seed: int) -> JsonValue:
        """Return the user's first message."""
        del seed
        needed = (self.opening, self.goal if self.model else self.script)
        missing = [name for name in needed if task.get(name) is None]
        if missing:
            raise EnvironmentFailedError(f"task {task.get('task_id', '')!r} lacks the field {missing[0]!r}")
        self._task = task
        if self.model:
            self._client = _client(self.model)
        first = str(task[self.opening])
        self._messages = [{"user": first}]
        return first

    def step(self, action: Action) -> StepResult:
        """Return the user's reply."""
        self._messages.append({"assistant": action.message})
        result = self._reply_of_model() if self._client else self._reply_of_script(action.message)
        self._messages.append({"user": str(result.observation)})
        return result

    def _reply_of_script(self, message: str) -> StepResult:
        script = self._task[self.script]
        for line in script if isinstance(script, list) else ():
            rule = cast("dict[str, Any]", line) if isinstance(line, dict) else {}
            if re.search(str(rule.get("when", "")), message, re.IGNORECASE):
                return StepResult(
                    str(rule.get("say", "")),
                    reward=rule.get("reward"),
                    done=bool(rule.get("done", False)),
                    reason=str(rule.get("reason", "")),
                )
        return StepResult(self.otherwise)

    def _reply_of_model(self) -> StepResult:
        prompt = _PROMPT.format(
            goal=json.dumps(self._task[self.goal], ensure_ascii=False),
            success=_SUCCESS,
            failure=_FAILURE,
            conversation=json.dumps(self._messages, ensure_ascii=False),
        )
        try:
            reply = cast("ModelClient", self._client).ask(prompt).strip()
        except ModelCallError as error:
            raise EnvironmentFailedError(f"the user's model gave no answer: {error.what}") from error
        for sign, success in ((_SUCCESS, True), (_FAILURE, False)):
            if sign in reply:
                text = reply.replace(sign, "").strip()
                reason = "The user has what it wanted." if success else "The user gave up."
                return StepResult(text, reward=float(success), done=True, success=success, reason=reason)
        return StepResult(reply)


def _client(model: str) -> ModelClient:
    directory = default_data_dir()
    models = load_configuration(directory).models
    if model not in models:
        known = ", ".join(sorted(models)) or "none"
        raise EnvironmentFailedError(f"the user's model {model!r} is not in spanloop.toml; [models] has: {known}")
    return ModelClient(models[model], directory)
