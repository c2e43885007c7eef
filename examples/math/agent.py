"""An agent on openai-agents that solves arithmetic and word problems with a Python tool.

    opentelemetry-instrument python agent.py TASKS.jsonl --model NAME

It attempts every task of the file. Spanloop's two optional calls, ``task()`` and ``reward()``, name the task and the
reward of each attempt. ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` set the model's endpoint.
"""

import argparse
import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

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
from openai import AsyncOpenAI, OpenAIError
from python_tool import ERROR, EXAMPLES, INSTRUCTIONS, python, question_item

from spanloop.instrumentation import reward, task

MAX_TURNS: Final = 3
MAX_TOKENS: Final = 48


class Task(NamedTuple):
    """One problem, as ``tasks.py`` writes it."""

    id: str
    question: str
    expression: str
    answer: int
    difficulty: str


def first_value(_: RunContextWrapper[None], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
    """Make the first value of Python the agent's answer; the model reads an error and tries again."""
    values = [str(each.output) for each in results if not str(each.output).startswith(ERROR)]
    return ToolsToFinalOutputResult(is_final_output=bool(values), final_output=values[0] if values else None)


async def attempt(agent: Agent[None], problem: Task) -> float:
    """Attempt one task; return its reward."""
    async with task(problem.id):
        try:
            result = await Runner.run(agent, [*EXAMPLES, question_item(problem.question)], max_turns=MAX_TURNS)
            score = grade(problem.answer, str(result.final_output))
        except AgentsException:  # the model called no tool that exists, or every call failed
            score = 0.0
        reward(score)
    return score


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


async def attempt_all(agent: Agent[None], problems: list[Task], parallel: int) -> None:
    """Attempt every problem, ``parallel`` at a time."""
    free = asyncio.Semaphore(parallel)

    async def limited(problem: Task) -> float:
        async with free:
            return await attempt(agent, problem)

    total = 0.0
    running = [asyncio.create_task(limited(problem)) for problem in problems]
    for completed, score in enumerate(asyncio.as_completed(running), start=1):
        total += await score
        print(f"{completed}/{len(problems)} attempts, mean reward {total / completed:.2f}", flush=True)


def main() -> None:
    """Attempt every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path, help="file of tasks, as tasks.py writes it")
    parser.add_argument("--model", required=True, help="name at OPENAI_BASE_URL")
    parser.add_argument("--attempts", type=int, default=1, help="attempts at each task; default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.6, help="default: %(default)s")
    parser.add_argument("--parallel", type=int, default=32, help="attempts at the same time; default: %(default)s")
    options = parser.parse_args()
    lines = options.tasks.read_text(encoding="utf-8").splitlines()
    problems = [Task(**json.loads(line)) for line in lines]
    set_tracing_disabled(True)  # openai-agents would send its own traces to OpenAI
    client = AsyncOpenAI(api_key=os.environ.get("OPENAI_API_KEY", "not-needed"))
    agent = Agent(
        name="mathematician",
        instructions=INSTRUCTIONS,
        model=OpenAIChatCompletionsModel(options.model, client),
        model_settings=ModelSettings(temperature=options.temperature, max_tokens=MAX_TOKENS),
        tools=[python],
        tool_use_behavior=first_value,
    )
    try:
        asyncio.run(attempt_all(agent, problems * options.attempts, options.parallel))
    except OpenAIError as error:
        sys.exit(f"the model did not respond: {error}")


if __name__ == "__main__":
    main()
