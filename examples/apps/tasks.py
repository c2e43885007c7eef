"""Tasks for an office of apps, by seed: training and test share no name, no file and no amount.

python tasks.py FOLDER [--seed 0]

``demonstrations.jsonl`` has an expert's dialogs for the first training tasks.
"""

import random
from typing import Any, Final, NamedTuple

from spanloop.evaluation.tasks.task_files import Split, write_task_files

NAMES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("ann", "bob", "carla", "dan", "eva", "fred", "gina", "hugo"),
    "test": ("ines", "jack", "kim", "liam", "mona", "nils"),
}
TOPICS: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("budget", "travel", "website", "hiring", "cleaning"),
    "test": ("insurance", "lighting", "parking", "training"),
}
KINDS: Final = ("invoice", "meeting", "figure")


class Task(NamedTuple):
    """What is asked, the rows at the start, and the rows that have to be written."""

    id: str
    request: str
    rows: dict[str, list[list[Any]]]
    """Table → rows."""
    writes: dict[str, list[list[Any]]]
    """Table → rows that are added."""
    difficulty: str
    type: str
    """The same, for weights by type."""


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Return tasks of each kind in turn."""
    rng = random.Random(f"{split} {seed}")
    return [_task(split, number, KINDS[number % len(KINDS)], rng) for number in range(count)]


def _task(split: Split, number: int, kind: str, rng: random.Random) -> Task:
    sender, other = rng.sample(NAMES[split], 2)
    topic, other_topic = rng.sample(TOPICS[split], 2)
    amount = rng.randrange(11, 400, 2) + (split == "test")  # odd in training, even in the test
    day, hour = f"2027-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}", rng.randint(9, 17)
    file, other_file = f"{topic}-{number}.txt", f"{other_topic}-{number}.txt"
    rows: dict[str, list[list[Any]]] = {
        "contacts": [[name] for name in NAMES[split]],
        "mail": [[other, "me", f"Please pay {amount + 40} for {other_topic}."]],
        "files": [[other_file, f"{other_topic}: {amount + 20} dollars"]],
        "calendar": [[day, 8, other_topic]],
    }
    match kind:
        case "invoice":
            request = f"Pay the invoice of {sender}."
            rows["mail"].append([sender, "me", f"The invoice is in {file}."])
            rows["files"].append([file, f"{topic}: {amount} dollars"])
            writes: dict[str, list[list[Any]]] = {"payments": [[sender, amount]]}
        case "meeting":
            request = f"Enter the meeting that {sender} asks for, and answer: confirmed."
            rows["mail"].append([sender, "me", f"Can we talk about {topic} on {day} at {hour}?"])
            writes = {"calendar": [[day, hour, topic]], "mail": [["me", sender, "confirmed"]]}
        case _:
            request = f"Send {sender} the amount that is asked for, as a number."
            rows["mail"].append([sender, "me", f"What is the amount in {file}?"])
            rows["files"].append([file, f"{topic}: {amount} dollars"])
            writes = {"mail": [["me", sender, str(amount)]]}
    return Task(f"{split}/{kind}/{number:03d}", request, rows, writes, kind, kind)


if __name__ == "__main__":
    from expert import demonstration

    write_task_files(__doc__, make_tasks, demonstrate=demonstration)
