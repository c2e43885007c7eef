"""An agent that plays countdown on the bare OpenAI SDK: propose an expression, read its value, propose another.

    opentelemetry-instrument python agent.py TASKS.jsonl --model NAME

It attempts every puzzle of the file. Spanloop's two optional calls, ``task()`` and ``reward()``, name the puzzle and
the reward of each attempt. ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` set the model's endpoint.
"""
# pyright: reportMissingTypeStubs=false

import argparse
import json
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from openai import OpenAI, OpenAIError
from reasoning_gym.games.countdown import CountdownConfig, CountdownDataset
from sympy import Rational
from sympy.parsing.sympy_parser import parse_expr

from spanloop.instrumentation import reward, task

MAX_TURNS: Final = 3
MAX_TOKENS: Final = 20
"""Of a turn."""
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


def attempt(client: OpenAI, model: str, puzzle: Puzzle, temperature: float) -> float:
    """Attempt one puzzle; return its reward, the grade of the last expression."""
    messages: list[Any] = [*OPENING, {"role": "user", "content": puzzle.question}]
    score = 0.0
    with task(puzzle.id, agent_name="countdown player"):
        for _ in range(MAX_TURNS):
            reply = client.chat.completions.create(
                model=model, messages=messages, temperature=temperature, max_tokens=MAX_TOKENS
            )
            content = reply.choices[0].message.content or ""
            expression = expression_of(content)
            score = grade(puzzle, expression)
            if score == 1:
                break
            messages += [
                {"role": "assistant", "content": content},
                {"role": "user", "content": feedback(puzzle, expression)},
            ]
        reward(score)
    return score


def main() -> None:
    """Attempt every puzzle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path, help="file of puzzles, as tasks.py writes it")
    parser.add_argument("--model", required=True, help="name at OPENAI_BASE_URL")
    parser.add_argument("--attempts", type=int, default=1, help="attempts at each puzzle; default: %(default)s")
    parser.add_argument("--temperature", type=float, default=0.8, help="default: %(default)s")
    parser.add_argument("--parallel", type=int, default=32, help="attempts at the same time; default: %(default)s")
    options = parser.parse_args()
    lines = options.tasks.read_text(encoding="utf-8").splitlines()
    puzzles = [Puzzle(**json.loads(line)) for line in lines]
    client = OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "not-needed"), max_retries=2)
    total = 0.0
    with ThreadPoolExecutor(max_workers=options.parallel) as pool:
        running = [
            pool.submit(attempt, client, options.model, puzzle, options.temperature)
            for puzzle in puzzles
            for _ in range(options.attempts)
        ]
        for completed, future in enumerate(as_completed(running), start=1):
            try:
                total += future.result()
            except OpenAIError as error:
                pool.shutdown(wait=False, cancel_futures=True)
                sys.exit(f"the model did not respond: {error}")
            print(f"{completed}/{len(running)} attempts, mean reward {total / completed:.2f}", flush=True)


if __name__ == "__main__":
    main()
