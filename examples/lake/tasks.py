"""Maps of frozen lakes, by seed: no map is both in training and in the test, with any seed.

python tasks.py FOLDER [--seed 0]
"""

import argparse
import json
import random
import zlib
from collections import deque
from pathlib import Path
from typing import Final, Literal, NamedTuple

Split = Literal["train", "test"]
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


def main() -> None:
    """Write ``train.jsonl`` and ``test.jsonl``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of the lakes")
    parser.add_argument("--train", type=int, default=96, help="number of training lakes; default: %(default)s")
    parser.add_argument("--test", type=int, default=120, help="number of test lakes; default: %(default)s")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    counts: dict[Split, int] = {"train": options.train, "test": options.test}
    for split, count in counts.items():
        lines = [json.dumps(task._asdict()) + "\n" for task in make_tasks(split, count, options.seed)]
        (options.folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
