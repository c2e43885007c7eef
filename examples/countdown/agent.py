"""An agent that plays countdown on the bare OpenAI SDK: propose an expression, read its value, propose another.

    spanloop loop app.toml

`play` is called for each attempt; ``reward()`` sends its reward. ``OPENAI_BASE_URL`` and ``OPENAI_MODEL`` name the
model.
"""
# pyright: reportMissingTypeStubs=false

import os
import re
from functools import cache
from typing import Any, Final, NamedTuple

from openai import OpenAI
from reasoning_gym.games.countdown import CountdownConfig, CountdownDataset
from sympy import Rational
from sympy.parsing.sympy_parser import parse_expr

from spanloop.instrumentation import reward

MAX_TURNS: Final = 3
MAX_TOKENS: Final = 20
"""Of a turn."""
TEMPERATURE: Final = 0.8
SYSTEM: Final = "You solve number puzzles. Answer with one equation."
_LONGEST_EXPRESSION: Final = 40
_ARITHMETIC: Final = re.compile(r"[\d ()+\-*/]+")


class Puzzle(NamedTuple):
    """Combine all numbers, each once, into an expression with the value ``target``; as ``tasks.py`` writes it."""

    id: str
    question: str
    numbers: list[int]
    target: int
    difficulty: str


def expression_of(answer: str) -> str:
    """Return the expression of an answer: what its first line has before an equals sign."""
    return answer.strip().partition("\n")[0].partition("=")[0].strip()


def value_of(expression: str) -> Rational | None:
    """Return the value of an arithmetic expression; None for other text, and for a division by zero.

    The parser evaluates Python, so it sees short arithmetic only.
    """
    if len(expression) > _LONGEST_EXPRESSION or not _ARITHMETIC.fullmatch(expression) or "**" in expression:
        return None
    try:
        value = parse_expr(expression)
    except Exception:  # noqa: BLE001 - it raises whatever the evaluated text raises
        return None
    return value if isinstance(value, Rational) else None


def grade(puzzle: Puzzle, expression: str) -> float:
    """Return reasoning-gym's score: 1 for a solution, 0.05 for another expression, 0.01 for other text."""
    answer = expression if value_of(expression) is not None else None
    metadata = {"numbers": puzzle.numbers, "target": puzzle.target}
    return float(_verifier().score_answer(answer, {"metadata": metadata}))


@cache
def _verifier() -> CountdownDataset:
    return CountdownDataset(CountdownConfig(size=1))


def feedback(puzzle: Puzzle, expression: str) -> str:
    """Return what the environment says about an expression that is no solution."""
    value = value_of(expression)
    if value is None:
        return "That is not an expression."
    if sorted(int(number) for number in re.findall(r"\d+", expression)) != sorted(puzzle.numbers):
        return f"Use {', '.join(str(number) for number in puzzle.numbers)}."
    return f"{expression} = {value}, too {'small' if value < puzzle.target else 'large'}."


def _example(numbers: list[int], target: int, *expressions: str) -> list[Any]:
    question = f"Numbers: {', '.join(str(number) for number in numbers)}. Target: {target}."
    puzzle = Puzzle("example", question, numbers, target, "")
    messages: list[Any] = [{"role": "user", "content": question}]
    for expression in expressions:
        messages.append({"role": "assistant", "content": f"{expression} = {value_of(expression)}"})
        messages.append({"role": "user", "content": feedback(puzzle, expression)})
    return messages[:-1]


OPENING: Final[list[Any]] = [
    {"role": "system", "content": SYSTEM},
    *_example([4, 13], 9, "4 + 13", "13 - 4"),
    *_example([3, 15], 45, "3 + 15", "3 * 15"),
    *_example([14, 5, 2], 17, "14 + 5 + 2", "14 + 5 - 2"),
    *_example([2, 16, 3], 35, "2 + 16 + 3", "2 * 16 + 3"),
    *_example([15, 3, 13], 5, "15 + 3 - 13"),
    *_example([14, 1], 15, "14 + 1"),
    *_example([4, 13, 2], 22, "4 + 13 + 2", "13 * 2 - 4"),
]
"""Example games; small models do not answer with an equation without them."""


def play(fields: dict[str, Any]) -> str:
    """Attempt one puzzle; return the last expression, whose grade is the reward."""
    puzzle = Puzzle(id=os.environ["SPANLOOP_TASK_ID"], **fields)
    messages: list[Any] = [*OPENING, {"role": "user", "content": puzzle.question}]
    expression = ""
    for _ in range(MAX_TURNS):
        reply = _client().chat.completions.create(
            model=os.environ["OPENAI_MODEL"], messages=messages, temperature=TEMPERATURE, max_tokens=MAX_TOKENS
        )
        content = reply.choices[0].message.content or ""
        expression = expression_of(content)
        if grade(puzzle, expression) == 1:
            break
        messages += [
            {"role": "assistant", "content": content},
            {"role": "user", "content": feedback(puzzle, expression)},
        ]
    reward(grade(puzzle, expression))
    return expression


@cache
def _client() -> OpenAI:
    return OpenAI(max_retries=2)
