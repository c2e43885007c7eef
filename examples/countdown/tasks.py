"""Write countdown puzzles of reasoning-gym from a seed: combine all numbers, each once, to reach a target.

    python tasks.py FOLDER [--seed N] [--train N] [--test N]

A set of numbers is either for training or for the test, with every seed: no test puzzle has the numbers of a training
puzzle.
"""
# pyright: reportMissingTypeStubs=false

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from reasoning_gym.games.countdown import CountdownConfig, CountdownDataset

from spanloop.evaluation.tasks.task_files import Split, write_task_files

SPLITS: Final[tuple[Split, ...]] = ("train", "test")
TEST_SHARE: Final = 0.4
"""Share of the sets of numbers that are for the test."""
MIN_VALUE: Final = 2
MAX_VALUE: Final = 12
MAX_TARGET: Final = 99
PUZZLES_A_SEED: Final = 10_000
"""Puzzles of a difficulty among which those of both splits are looked for."""


class Difficulty(NamedTuple):
    """What a puzzle is made of."""

    numbers: int
    operators: tuple[str, ...]


DIFFICULTIES: Final = {
    "two numbers": Difficulty(2, ("+", "-", "*")),
    "three numbers, sums": Difficulty(3, ("+", "-")),
    "three numbers": Difficulty(3, ("+", "-", "*")),
}
"""A set of tasks has an equal number of each."""


class Task(NamedTuple):
    """One puzzle."""

    id: str
    question: str
    numbers: list[int]
    target: int
    difficulty: str


def split_of(numbers: list[int]) -> Split:
    """Return the split of a set of numbers, which depends on nothing else."""
    digest = hashlib.sha256(str(sorted(numbers)).encode()).digest()
    return "test" if digest[0] < TEST_SHARE * 256 else "train"


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Generate ``count`` different puzzles, an equal number of each difficulty.

    Raises:
        ValueError: Fewer different puzzles were found.
    """
    sources = [_puzzles(difficulty, split, seed) for difficulty in DIFFICULTIES]
    tasks: list[Task] = []
    for number in range(count):
        task = next(sources[number % len(sources)], None)
        if task is None:
            raise ValueError(f"there are not {count} different puzzles; {number} were found")
        tasks.append(task._replace(id=f"{split}/{number:04d}"))
    return tasks


def _puzzles(difficulty: str, split: Split, seed: int) -> Iterator[Task]:
    """Yield the different puzzles of a difficulty, without ids."""
    count, operators = DIFFICULTIES[difficulty]
    # puzzle ``i`` of seed ``s`` is puzzle ``i - 1`` of seed ``s + 1``
    first = (seed * len(DIFFICULTIES) + list(DIFFICULTIES).index(difficulty)) * PUZZLES_A_SEED
    config = CountdownConfig(
        min_numbers=count,
        max_numbers=count,
        min_value=MIN_VALUE,
        max_value=MAX_VALUE,
        min_target=1,
        max_target=MAX_TARGET,
        operators=operators,
        seed=first,
        size=PUZZLES_A_SEED,
    )
    known: set[tuple[int, ...]] = set()
    for entry in CountdownDataset(config):
        puzzle = entry["metadata"]
        key = (*sorted(puzzle["numbers"]), puzzle["target"])
        if split_of(puzzle["numbers"]) == split and key not in known:
            known.add(key)
            numbers = ", ".join(str(number) for number in puzzle["numbers"])
            question = f"Numbers: {numbers}. Target: {puzzle['target']}."
            yield Task("", question, puzzle["numbers"], puzzle["target"], difficulty)


if __name__ == "__main__":
    write_task_files(__doc__, make_tasks)
