"""An agent on openai-agents that solves arithmetic and word problems with a Python tool.

    spanloop loop app.toml

`solve` is called for each attempt; ``reward()`` sends its reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the
model.
"""

import os
import re
from typing import Any, Final

from agents import (
    Agent,
    AgentsException,
    FunctionToolResult,
    ModelSettings,
    RunContextWrapper,
    Runner,
    ToolsToFinalOutputResult,
    set_tracing_disabled,
)
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI
from python_tool import ERROR, EXAMPLES, INSTRUCTIONS, python, question_item

from spanloop.instrumentation import reward

MAX_TURNS: Final = 3
MAX_TOKENS: Final = 48
TEMPERATURE: Final = 0.6


def first_value(_: RunContextWrapper[None], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
    """Make the first value of Python the agent's answer; the model reads an error and tries again."""
    values = [str(each.output) for each in results if not str(each.output).startswith(ERROR)]
    return ToolsToFinalOutputResult(is_final_output=bool(values), final_output=values[0] if values else None)


def make_agent() -> Agent[None]:
    """Return the agent."""
    set_tracing_disabled(disabled=True)  # openai-agents would send its own traces to OpenAI
    return Agent(
        name="mathematician",
        instructions=INSTRUCTIONS,
        model=OpenAIChatCompletionsModel(os.environ["OPENAI_MODEL"], AsyncOpenAI(max_retries=2)),
        model_settings=ModelSettings(temperature=TEMPERATURE, max_tokens=MAX_TOKENS),
        tools=[python],
        tool_use_behavior=first_value,
    )


async def solve(problem: dict[str, Any]) -> str:
    """Attempt one problem; return the answer, whose grade is the reward."""
    try:
        result = await Runner.run(make_agent(), [*EXAMPLES, question_item(problem["question"])], max_turns=MAX_TURNS)
        answer = str(result.final_output)
    except AgentsException:  # the model called no tool that exists, or every call failed
        answer = ""
    reward(grade(problem["answer"], answer))
    return answer


def grade(expected: int, answer: str) -> float:
    """Return the reward of an attempt: 1 for the right number, 0.1 for another one, 0 for none.

    Args:
        expected: The right answer.
        answer: The agent's answer: the value of its Python expression, or what the model said instead.
    """
    numbers = re.findall(r"-?\d+(?:\.\d+)?", answer.replace(",", ""))
    if not numbers:
        return 0.0
    return 1.0 if float(numbers[-1]) == expected else 0.1
