"""An agent on openai-agents that solves arithmetic and word problems with a Python tool.

    opentelemetry-instrument python agent.py TASKS.jsonl --model NAME

It attempts every task of the file. Spanloop's two optional calls, ``task()`` and ``reward()``, name the task and the
reward of each attempt. ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` set the model's endpoint.
"""

import argparse
import ast
import asyncio
import json
import math
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
    function_tool,
    set_tracing_disabled,
)
from agents.items import TResponseInputItem
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI, OpenAIError

from spanloop.instrumentation import reward, task

MAX_TURNS: Final = 3
MAX_TOKENS: Final = 48
INSTRUCTIONS: Final = "You solve math problems. Call python."
QUESTION: Final = "Question: {}"
ERROR: Final = "Error: "
"""How the output of a failed call begins."""
_LONGEST_CODE: Final = 60


class Task(NamedTuple):
    """One problem, as ``tasks.py`` writes it."""

    id: str
    question: str
    expression: str
    answer: int
    difficulty: str


@function_tool(failure_error_function=lambda _, error: f"{ERROR}{error}")
def python(code: str) -> str:
    """Value of a Python expression."""
    return evaluate(code)


def evaluate(code: str) -> str:
    """Return the value of an arithmetic expression.

    Raises:
        ValueError: ``code`` is no expression of numbers, + - * / and brackets, or it divides by zero.
    """
    if len(code) > _LONGEST_CODE:
        raise ValueError(f"the code is longer than {_LONGEST_CODE} characters")
    try:
        value = _value(ast.parse(code.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if not math.isfinite(value):
        raise ValueError("the value is not finite")
    return f"{value:.10g}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left) * _value(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value(left) / _value(right)
        case _:
            raise ValueError("only numbers, + - * / and brackets are understood")


def first_value(_: RunContextWrapper[None], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
    """Make the first value of Python the agent's answer; the model reads an error and tries again."""
    values = [str(each.output) for each in results if not str(each.output).startswith(ERROR)]
    return ToolsToFinalOutputResult(is_final_output=bool(values), final_output=values[0] if values else None)


def _example(question: str, code: str) -> list[TResponseInputItem]:
    arguments = json.dumps({"code": code})
    return [
        {"role": "user", "content": QUESTION.format(question)},
        {"type": "function_call", "call_id": "example", "name": "python", "arguments": arguments},
        {"type": "function_call_output", "call_id": "example", "output": evaluate(code)},
    ]


EXAMPLES: Final = [
    *_example("What is 9 times 45?", "9 * 45"),
    *_example("Joe has 8 boxes with 20 pens each. How many pens does Joe have?", "8 * 20"),
    *_example("Kim buys 4 bags of 25 nuts and eats 10. How many nuts are left?", "4 * 25 - 10"),
    *_example("Joe has 60 pens and sells 35. How many are left?", "60 - 35"),
    *_example("Add 50 and 8, then multiply by 2.", "(50 + 8) * 2"),
    *_example("Kim has 84 nuts for 4 people. How many nuts does each person have?", "84 / 4"),
    *_example("Kim had 60 pens. She gets 30 and sells 15. How many are there?", "60 + 30 - 15"),
    *_example("Joe walks 5 miles on Monday and 13 on Tuesday. How many is that?", "5 + 13"),
]
"""Example calls; small models call no tool without them."""


async def attempt(agent: Agent[None], problem: Task) -> float:
    """Attempt one task; return its reward."""
    question: TResponseInputItem = {"role": "user", "content": QUESTION.format(problem.question)}
    async with task(problem.id):
        try:
            result = await Runner.run(agent, [*EXAMPLES, question], max_turns=MAX_TURNS)
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
