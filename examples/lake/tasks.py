"""Maps of frozen lakes, by seed: no map is both in training and in the test, with any seed.

python tasks.py FOLDER [--seed 0]
"""

import random
import zlib
from collections import deque
from typing import Final, NamedTuple

from spanloop.evaluation.tasks.task_files import Split, write_task_files

SIZES: Final = (3, 4)
HOLES: Final = {3: 2, 4: 4}
"""Number of holes of a lake, by its size."""
TRIES: Final = 10_000


class Task(NamedTuple):
    """A lake."""

    id: str
    kwargs: dict[str, list[str]]
    """``desc``: its rows, of S (start), F (ice), H (hole) and G (goal)."""
    difficulty: str
    type: str
    """The same, for weights by type."""


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Return different lakes whose goal can be reached, of each size in turn.

    Raises:
        ValueError: Fewer different lakes exist.
    """
    rng = random.Random(f"{split} {seed}")
    tasks: list[Task] = []
    seen: set[str] = set()
    for number in range(count):
        size = SIZES[number % len(SIZES)]
        for _ in range(TRIES):
            desc = _random_map(size, rng)
            text = "/".join(desc)
            if _split_of(text) == split and text not in seen and _is_solvable(desc):
                break
        else:
            raise ValueError(f"there are not {count} different lakes; {number} were found")
        seen.add(text)
        difficulty = f"{size} by {size}"
        tasks.append(Task(f"{split}/{size}x{size}/{number:03d}", {"desc": desc}, difficulty, difficulty))
    return tasks


def _random_map(size: int, rng: random.Random) -> list[str]:
    cells = ["F"] * (size * size)
    start, goal, *holes = rng.sample(range(size * size), 2 + HOLES[size])
    cells[start], cells[goal] = "S", "G"
    for hole in holes:
        cells[hole] = "H"
    return ["".join(cells[row * size : (row + 1) * size]) for row in range(size)]


def _split_of(text: str) -> Split:
    return "test" if zlib.crc32(text.encode()) % 3 == 0 else "train"


def _is_solvable(desc: list[str]) -> bool:
    """Whether the goal is reached without a hole, in more than one step."""
    size = len(desc)
    start = next((row, line.index("S")) for row, line in enumerate(desc) if "S" in line)
    steps, waiting = {start: 0}, deque([start])
    while waiting:
        row, column = waiting.popleft()
        if desc[row][column] == "G":
            return steps[row, column] > 1
        for place in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            is_inside = 0 <= place[0] < size and 0 <= place[1] < size
            if is_inside and place not in steps and desc[place[0]][place[1]] != "H":
                steps[place] = steps[row, column] + 1
                waiting.append(place)
    return False


if __name__ == "__main__":
    write_task_files(__doc__, make_tasks)
