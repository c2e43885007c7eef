"""The weighted reward of an attempt: its answer, its tools, its steps and its time, with penalties.

Invariant: one implementation weighs, `spanloop.converters.rewards.AgentReward`; this module reads what is expected from
the task's fields.
"""

import json
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self, cast

from pydantic import Field, JsonValue, PrivateAttr

from spanloop.converters.attribution.judge import json_object_in, transcript
from spanloop.converters.rewards import (
    SUCCESS_THRESHOLD,
    AgentReward,
    Attempt,
    Expectation,
    Penalties,
    ReferenceCall,
    Weights,
)
from spanloop.converters.rewards.comparison import text_of
from spanloop.converters.rewards.rubric import Criteria, Work
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.model_client import ModelCallError, ModelClient
from spanloop.foundation.settings import load_configuration

from .base import Grader, GraderContext, GradingError
from .verdict import Verdict

_TIMING: Final = Criteria({"timing": "each tool is called when it is needed, and not before"})
_SHOWN: Final = 200


class AgentGrader(Grader):
    """Weighs what an attempt did, as its spans record it."""

    needs_attempt: ClassVar[bool] = True
    version: ClassVar[str] = "1"
    summary: ClassVar[str] = (
        "The weighted mean of components, plus penalties, of what the attempt's spans record "
        "([the composite](../how-to/define-rewards.md#the-composite)). Expected answer, tools, steps and calls are "
        "fields of the task; without an expected answer the environment's reward counts."
    )

    expected: str = "answer"
    """The task's field that holds the expected text, or several."""
    tools: str = "tools"
    """The task's field that holds the names of the tools that are needed."""
    steps: str = "steps"
    """The task's field that holds the smallest number of model calls."""
    seconds_field: str = "seconds"
    """The task's field that holds the time allowed, in seconds."""
    calls: str = "reference_calls"
    """The task's field that holds the calls that are needed, in order."""
    weights: Weights = Weights()
    """Shares of the components."""
    penalties: Penalties = Penalties()
    """Amounts that each occurrence of a mistake adds."""
    seconds: float = 30.0
    """Time allowed where a task says nothing."""
    timeout_s: float = 300.0
    """Longest time of an attempt, in seconds; a longer one is penalised once."""
    least: float = -1.0
    """Smallest reward."""
    most: float = 1.0
    """Largest reward."""
    threshold: float = Field(default=SUCCESS_THRESHOLD)
    """From this reward on an attempt is a success."""
    timing_model: str = ""
    """A model in `[models]` of spanloop.toml that marks the timing of tool calls of tasks without reference calls."""

    _reward: AgentReward = PrivateAttr()
    _client: ModelClient | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        """Check weights and penalties."""
        super().model_post_init(context)
        self._reward = AgentReward(
            weights=self.weights,
            penalties=self.penalties,
            seconds=self.seconds,
            timeout_s=self.timeout_s,
            least=self.least,
            most=self.most,
        )

    def required_fields(self) -> Sequence[str]:
        """Return the fields that options name; those that a task may have are not required."""
        names = ("expected", "tools", "steps", "seconds_field", "calls")
        return [str(getattr(self, name)) for name in names if name in self.model_fields_set]

    def bind(self, context: GraderContext) -> Self:
        """Return the grader with a client of its model.

        Raises:
            ConfigurationError: spanloop.toml has no such model.
        """
        if self.timing_model:
            models = load_configuration(context.data_dir).models
            if self.timing_model not in models:
                known = ", ".join(sorted(models)) or "none"
                raise ConfigurationError(
                    f"The agent grader's model {self.timing_model!r} is not in spanloop.toml; [models] has: {known}.",
                    next_step=f"Add a section [models.{self.timing_model}] with url and model.",
                )
            self._client = ModelClient(models[self.timing_model], context.data_dir)
        return self

    def grade(self, task: Task, answer: str) -> Verdict:
        """Refuse: an answer alone does not say what was done."""
        raise GradingError(f"Grader 'agent' needs the spans of the attempt at task {task.id!r}, got {answer!r:.40}.")

    def grade_attempt(self, task: Task, answer: str, attempt: Attempt) -> Verdict:
        """Return the weighted reward.

        Raises:
            GradingError: A field of the task has another type, or the model gives no mark.
        """
        judgement = self._reward.judge(attempt, self._expectation(task, attempt))
        return Verdict.of(
            judgement.value,
            is_success=judgement.value >= self.threshold,
            reason=judgement.reason,
            components=cast("dict[str, JsonValue]", judgement.components),
            answer=answer,
        )

    def _expectation(self, task: Task, attempt: Attempt) -> Expectation:
        fields = task.fields
        answer, calls = fields.get(self.expected), _reference_calls(task, self.calls)
        tools = fields.get(self.tools)
        try:
            return Expectation(
                answer=None if answer is None else list(map(text_of, answer if isinstance(answer, list) else [answer])),
                tools=[call.name for call in calls] if tools is None and calls else cast("list[str] | None", tools),
                steps=cast("int | None", fields.get(self.steps)),
                seconds=cast("float | None", fields.get(self.seconds_field)),
                calls=calls or None,
                tool_timing=self._timing_mark(task, attempt) if not calls else None,
            )
        except ValueError as error:
            raise GradingError(
                f"Fields of task {task.id!r} have another form: {' '.join(str(error).split())[:300]}.",
                next_step=f"{self.tools}: a list of names; {self.steps}: an integer; {self.seconds_field}: a number.",
            ) from error

    def _timing_mark(self, task: Task, attempt: Attempt) -> float | None:
        if self._client is None or not self.weights.tool_timing or not attempt.calls:
            return None
        fields = json.dumps(dict(task.fields), ensure_ascii=False, indent=1)
        work = Work(
            "an agent's work", "The agent's work", transcript(attempt.episode), context=f"The task, as JSON:\n{fields}"
        )
        try:
            return _TIMING.mark(self._ask, work).by_criterion["timing"]
        except ValueError as error:
            raise GradingError(
                f"Model {self.timing_model!r} gave no usable mark of the timing for task {task.id!r}: {error}.",
                next_step="Use a stronger model, or give the task reference calls.",
            ) from error

    def _ask(self, question: str) -> dict[str, object]:
        try:
            reply = cast("ModelClient", self._client).ask(question)
        except ModelCallError as error:
            raise GradingError(error.what, next_step=error.next_step) from error
        marks = json_object_in(reply)
        if marks is None:
            raise ValueError(f"no JSON object in {reply[:_SHOWN]!r}")
        return marks


def _reference_calls(task: Task, field: str) -> list[ReferenceCall]:
    """Return the reference calls of a task.

    Raises:
        GradingError: They are no list of calls.
    """
    value = task.fields.get(field)
    calls: list[ReferenceCall] = []
    for each in value if isinstance(value, list) else () if value is None else (value,):
        name = each.get("name") if isinstance(each, dict) else None
        arguments = each.get("arguments") if isinstance(each, dict) else None
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            raise GradingError(
                f"Field {field!r} of task {task.id!r} is {json.dumps(value)[:_SHOWN]}, expected a list of calls.",
                next_step='Write each call as {"name": "lookup", "arguments": {"id": 7}}.',
            )
        calls.append(ReferenceCall(name, arguments or {}))
    return calls
