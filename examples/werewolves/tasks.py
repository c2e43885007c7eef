"""Games, by seed: training and test share no name of a player.

python tasks.py FOLDER [--seed 0]
"""

import random
from typing import Final, NamedTuple

from spanloop.evaluation.tasks.task_files import Split, write_task_files

NAMES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("Ann", "Bob", "Cid", "Dora", "Eve", "Finn", "Gus", "Hana", "Ivo", "June"),
    "test": ("Kim", "Liam", "Mona", "Nils", "Olga", "Pete", "Rosa", "Sven"),
}
ROLES: Final = ("villager", "wolf")
PLAYERS: Final = 5
"""The most that an environment's option ``players`` takes."""


class Task(NamedTuple):
    """A game."""

    id: str
    names: list[str]
    """The first one is the agent's."""
    role: str
    """The agent's role."""
    seed: int
    """Seed of places, the wolf and the script: each attempt at the game is at the same one."""
    difficulty: str
    type: str
    """The role, for results and for weights by type."""


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Return games, in turn of each role."""
    rng = random.Random(f"{split} {seed}")
    tasks: list[Task] = []
    for number in range(count):
        role = ROLES[number % len(ROLES)]
        names, game_seed = rng.sample(NAMES[split], PLAYERS), rng.randrange(1 << 31)
        tasks.append(Task(f"{split}/{number:03d}", names, role, game_seed, role, role))
    return tasks


if __name__ == "__main__":
    write_task_files(__doc__, make_tasks)
