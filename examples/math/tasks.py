"""Write arithmetic and word problems from a seed, each with its expression and answer.

    python tasks.py FOLDER [--seed N] [--train N] [--test N]

Training and test problems share no wording, name, thing or number.
"""

import random
import re
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from spanloop.evaluation.tasks.task_files import Split, write_task_files

SPLITS: Final[tuple[Split, ...]] = ("train", "test")
DIFFICULTIES: Final = ("arithmetic", "one step", "two steps")
"""A set of tasks has an equal number of each."""
LARGEST: Final = 1000
"""No answer is larger."""
TRIES: Final = 10_000
"""Attempts at finding one more problem."""


class Problem(NamedTuple):
    """A wording and the expression that solves it; letters stand for numbers."""

    text: str
    expression: str


class Task(NamedTuple):
    """One problem with its numbers."""

    id: str
    question: str
    expression: str
    answer: int
    difficulty: str


_NAMES: Final[dict[Split, Sequence[str]]] = {
    "train": ("Anna", "Tom", "Maria", "Ken", "Lucy", "Omar", "Ruth", "Paul"),
    "test": ("Clara", "Igor", "Nina", "Hugo", "Sara", "Emil"),
}
_THINGS: Final[dict[Split, Sequence[str]]] = {
    "train": ("apples", "books", "stamps", "pencils", "cards", "shells", "cookies", "marbles"),
    "test": ("oranges", "coins", "stickers", "tickets", "beads", "candles"),
}
_PROBLEMS: Final[dict[Split, dict[str, Sequence[Problem]]]] = {
    "train": {
        "arithmetic": (
            Problem("Add {a} and {b}.", "a + b"),
            Problem("How much is {a} plus {b}?", "a + b"),
            Problem("How much is {a} minus {b}?", "a - b"),
            Problem("Subtract {b} from {a}.", "a - b"),
            Problem("Multiply {a} by {b}.", "a * b"),
            Problem("How much is {a} times {b}?", "a * b"),
            Problem("Divide {a} by {b}.", "a / b"),
            Problem("Add {a} and {b}, then multiply by {c}.", "(a + b) * c"),
            Problem("Subtract {b} from {a}, then multiply by {c}.", "(a - b) * c"),
            Problem("Multiply {a} by {b}, then add {c}.", "a * b + c"),
            Problem("Multiply {a} by {b}, then subtract {c}.", "a * b - c"),
        ),
        "one step": (
            Problem("{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?", "a + b"),
            Problem("A shop sold {a} {things} on Monday and {b} on Friday. How many did it sell?", "a + b"),
            Problem("{name} has {a} {things} and gives {b} away. How many {things} are left?", "a - b"),
            Problem("{a} {things} are on a table. {name} takes {b} of them. How many remain?", "a - b"),
            Problem("{name} buys {b} boxes with {a} {things} each. How many {things} is that?", "a * b"),
            Problem("{name} makes {a} {things} each day. How many {things} are made in {b} days?", "a * b"),
            Problem("{name} shares {a} {things} equally among {b} friends. How many does each get?", "a / b"),
        ),
        "two steps": (
            Problem("{name} buys {b} packs of {a} {things} and then {c} more. How many {things} is that?", "a * b + c"),
            Problem("{name} buys {b} boxes with {a} {things} each and gives {c} away. How many are left?", "a * b - c"),
            Problem("{name} has {a} {things}, buys {b} more and gives {c} away. How many are left?", "a + b - c"),
            Problem("A shop had {a} {things} and sold {b} on Monday and {c} on Friday. How many remain?", "a - b - c"),
            Problem(
                "{name} makes {a} {things} each morning and {b} each evening. How many is that in {c} days?",
                "(a + b) * c",
            ),
        ),
    },
    "test": {
        "arithmetic": (
            Problem("What is the sum of {a} and {b}?", "a + b"),
            Problem("Compute {a} + {b}.", "a + b"),
            Problem("Compute {a} - {b}.", "a - b"),
            Problem("What is {a} less {b}?", "a - b"),
            Problem("What is the product of {a} and {b}?", "a * b"),
            Problem("Compute {a} * {b}.", "a * b"),
            Problem("What is {a} divided by {b}?", "a / b"),
            Problem("What is the sum of {a} and {b}, times {c}?", "(a + b) * c"),
            Problem("Take {b} away from {a} and multiply the result by {c}.", "(a - b) * c"),
            Problem("What is the product of {a} and {b}, plus {c}?", "a * b + c"),
            Problem("What is the product of {a} and {b}, minus {c}?", "a * b - c"),
        ),
        "one step": (
            Problem("{name} found {a} {things} last week and {b} today. How many were found in all?", "a + b"),
            Problem("A jar holds {a} {things}. {name} puts in {b} more. How many does it hold now?", "a + b"),
            Problem("{name} had {a} {things} but lost {b} of them. How many does {name} still have?", "a - b"),
            Problem("A club needs {a} {things} and has {b}. How many are missing?", "a - b"),
            Problem("There are {b} bags and each bag holds {a} {things}. How many are there in total?", "a * b"),
            Problem("{name} packs {a} {things} an hour. How many {things} are packed in {b} hours?", "a * b"),
            Problem("{a} {things} fill {b} equal bags. How many {things} are in each bag?", "a / b"),
        ),
        "two steps": (
            Problem(
                "There are {b} bags with {a} {things} each and {c} loose ones. How many are there in total?",
                "a * b + c",
            ),
            Problem(
                "{name} had {b} bags with {a} {things} each but lost {c}. How many does {name} still have?", "a * b - c"
            ),
            Problem(
                "A jar holds {a} {things}. {name} puts in {b} and takes out {c}. How many are in it now?", "a + b - c"
            ),
            Problem(
                "{name} had {a} {things} but lost {b} on the way and {c} at home. How many are still there?",
                "a - b - c",
            ),
            Problem(
                "{name} packs {a} {things} and Leo packs {b} an hour. How many do they pack in {c} hours?",
                "(a + b) * c",
            ),
        ),
    },
}


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Generate ``count`` different problems, an equal number of each difficulty.

    Raises:
        ValueError: Fewer different problems exist.
    """
    rng = random.Random(f"{split} {seed}")
    tasks: list[Task] = []
    asked: set[str] = set()
    for number in range(count):
        difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
        for _ in range(TRIES):
            question, expression = _fill(rng.choice(_PROBLEMS[split][difficulty]), split, rng)
            answer = eval(expression)
            if 1 < answer <= LARGEST and question not in asked:
                break
        else:
            raise ValueError(f"there are not {count} different problems; {number} were found")
        asked.add(question)
        id_ = f"{split}/{difficulty.replace(' ', '-')}/{number:03d}"
        tasks.append(Task(id_, question, expression, int(answer), difficulty))
    return tasks


def _fill(problem: Problem, split: Split, rng: random.Random) -> tuple[str, str]:
    """Return the question and its expression with random numbers."""
    values = {"a": rng.choice(_numbers(split, 12, 100))}
    values |= {letter: rng.choice(_numbers(split, 3, 30)) for letter in "bc"}
    if "/" in problem.expression:
        multiples = [number for number in _numbers(split, 12, LARGEST) if number % values["b"] == 0]
        values["a"] = rng.choice(multiples)
    words = {"name": rng.choice(_NAMES[split]), "things": rng.choice(_THINGS[split])}
    expression = re.sub(r"[abc]", lambda letter: str(values[letter[0]]), problem.expression)
    return problem.text.format(**values, **words), expression


@cache
def _numbers(split: Split, start: int, stop: int) -> list[int]:
    """Return the numbers of a split: a third of all numbers occurs in test problems only."""
    return [number for number in range(start, stop) if (zlib.crc32(str(number).encode()) % 3 == 0) == (split == "test")]


if __name__ == "__main__":
    write_task_files(__doc__, make_tasks, train=128, test=150)
