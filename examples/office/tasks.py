"""Generate questions for the office agent from a seed, each with the right answer.

Training and test questions share no wording and no value: their templates, items, numbers, events and companies
differ. The database holds the values of both.
"""

import argparse
import json
import random
import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Split = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")
KINDS: Final = ("price", "calculator", "time", "search")
"""The tools; a set of tasks has an equal number for each."""


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(first: str, second: str) -> tuple[str, ...]:
    return tuple(f"{word} {noun}" for noun in _names(second) for word in _names(first))


_ITEMS: Final[dict[Split, tuple[str, ...]]] = {
    "train": _pairs("red white black oak", "lamp desk chair mug shelf clock"),
    "test": _pairs("blue green grey pine", "sofa table stool bowl mirror rug"),
}
_EVENTS: Final[dict[Split, tuple[str, ...]]] = {
    "train": _pairs("team book yoga piano press", "lunch meeting class talk night"),
    "test": _pairs("chess swim sales music board", "club lesson dinner party exam"),
}
_COMPANIES: Final[dict[Split, tuple[str, ...]]] = {
    "train": _names(
        "Velora Brontex Quillon Marvane Tolvik Sandrel Ombrix Lastrom Perrano Cindral Gravonne Ustelle Yorvik Jalton "
        "Erimoor Rosgard"
    ),
    "test": _names(
        "Kestrin Dulvane Florix Pandrel Wendor Zarmine Hollux Nimbara Addison Fenwick Mirabel Oakton Thornby Vantell "
        "Castor Ilvane"
    ),
}
_FOUNDERS: Final[dict[Split, tuple[str, ...]]] = {
    "train": _pairs("Anna Tom Maria Ken Lucy Omar", "Berg Okoro Lund Sato Hart Diaz"),
    "test": _pairs("Clara Igor Nina Hugo Sara Emil", "Voss Petrov Adler Lam Conti Kraft"),
}
_CITIES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("Oslo", "Lima", "Rome", "Cairo", "Tokyo", "Perth", "Quito", "Berlin"),
    "test": ("Paris", "Dublin", "Seoul", "Madrid", "Vienna", "Boston", "Athens", "Delhi"),
}
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Friday", "Saturday", "Sunday")
_QUESTIONS: Final[dict[Split, dict[str, tuple[str, ...]]]] = {
    "train": {
        "price": ("How much is the {name}?", "What does the {name} cost?", "Give me the price of the {name}."),
        "+": ("Add {a} and {b}.", "How much is {a} plus {b}?", "Give me {a} + {b}."),
        "-": ("How much is {a} minus {b}?", "Give me {a} - {b}."),
        "*": ("Multiply {a} by {b}.", "How much is {a} times {b}?", "Give me {a} * {b}."),
        "hour": ("At what time is the {name}?", "When does the {name} start?", "Give me the hour of the {name}."),
        "day": ("On what day is the {name}?", "When is the {name}?", "Give me the day of the {name}."),
        "founder": ("Who is the founder of {name}?", "Who started {name}?", "Give me the founder of {name}."),
        "city": ("Where is {name}?", "In what city is {name}?", "Give me the city of {name}."),
    },
    "test": {
        "price": (
            "What is the cost of the {name}?",
            "Tell me the price of the {name}.",
            "What is the {name} sold for?",
        ),
        "+": ("What is the sum of {a} and {b}?", "Tell me {a} plus {b}.", "What is {a} + {b}?"),
        "-": ("Tell me {a} minus {b}.", "What is {a} - {b}?"),
        "*": ("What is the product of {a} and {b}?", "Tell me {a} times {b}.", "What is {a} * {b}?"),
        "hour": ("What time is the {name}?", "Tell me the time of the {name}."),
        "day": ("Which day is the {name}?", "Tell me the day of the {name}."),
        "founder": ("Which person founded {name}?", "Tell me who founded {name}.", "Name the founder of {name}."),
        "city": ("Which city is {name} in?", "Tell me where {name} is.", "Name the city of {name}."),
    },
}


@dataclass(frozen=True, slots=True)
class Task:
    """One question and its right answer."""

    id: str
    kind: str
    """The tool that returns the answer."""
    question: str
    answer: str
    """The final answer must contain it as a separate word."""


class World(NamedTuple):
    """The office's data for one split."""

    prices: dict[str, int]
    """Item → dollars."""
    events: dict[str, tuple[str, str]]
    """Event → day, time."""
    companies: dict[str, tuple[str, str]]
    """Company → founder, city."""


def world(split: Split) -> World:
    """Return a split's data, which is the same for every seed, so that one database serves every set of tasks."""
    rng = random.Random(f"office {split}")
    founders = rng.sample(_FOUNDERS[split], len(_COMPANIES[split]))
    return World(
        {item: rng.randrange(11, 299) for item in _ITEMS[split]},
        {
            event: (rng.choice(_DAYS), f"{rng.randrange(8, 20)}:{rng.choice(('00', '15', '30', '45'))}")
            for event in _EVENTS[split]
        },
        {
            company: (founder, rng.choice(_CITIES[split]))
            for company, founder in zip(_COMPANIES[split], founders, strict=True)
        },
    )


def write_office(database: Path) -> None:
    """Create the office's database; an existing one is replaced."""
    partial = database.with_name(f".{database.name}.partial")
    partial.unlink(missing_ok=True)
    with closing(sqlite3.connect(partial)) as connection, connection:
        connection.execute("CREATE TABLE items (name TEXT PRIMARY KEY, price INTEGER NOT NULL)")
        connection.execute("CREATE TABLE events (name TEXT PRIMARY KEY, day TEXT NOT NULL, time TEXT NOT NULL)")
        connection.execute("CREATE TABLE pages (text TEXT NOT NULL)")
        for split in SPLITS:
            prices, events, companies = world(split)
            connection.executemany("INSERT INTO items VALUES (?, ?)", prices.items())
            connection.executemany("INSERT INTO events VALUES (?, ?, ?)", [(name, *on) for name, on in events.items()])
            pages = [(f"{name} was founded by {who} in {city}",) for name, (who, city) in companies.items()]
            connection.executemany("INSERT INTO pages VALUES (?)", pages)
    partial.replace(database)


def write_tasks(path: Path, tasks: list[Task]) -> None:
    """Write ``tasks`` as JSON lines, for `read_tasks` and ``spanloop run``."""
    path.write_text("".join(json.dumps(asdict(task)) + "\n" for task in tasks), encoding="utf-8")


def read_tasks(path: Path) -> list[Task]:
    """Read the tasks that `write_tasks` wrote."""
    return [Task(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def make_tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Generate ``count`` different questions, an equal number for each tool, in random order.

    Raises:
        ValueError: Fewer different questions exist.
    """
    rng = random.Random(f"{split} {seed}")
    makers: dict[str, Callable[[random.Random, World, Split], tuple[str, str]]] = {
        "price": _price,
        "calculator": _sum,
        "time": _event,
        "search": _company,
    }
    known = world(split)
    tasks: list[Task] = []
    asked: set[str] = set()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        for _ in range(1000):
            question, answer = makers[kind](rng, known, split)
            if question not in asked:
                break
        else:
            raise ValueError(f"there are not {count} different questions; {number} were found")
        asked.add(question)
        tasks.append(Task(f"{split}/{kind}/{number:03d}", kind, question, answer))
    rng.shuffle(tasks)
    return tasks


def _price(rng: random.Random, known: World, split: Split) -> tuple[str, str]:
    item = rng.choice(list(known.prices))
    return rng.choice(_QUESTIONS[split]["price"]).format(name=item), str(known.prices[item])


def _sum(rng: random.Random, _: World, split: Split) -> tuple[str, str]:
    sign = rng.choice("+-*")
    odd = 0 if split == "train" else 1  # first operands are even in training and odd in the test
    first, second = rng.randrange(20 + odd, 98, 2), rng.randrange(3, 20)
    value = {"+": first + second, "-": first - second, "*": first * second}[sign]
    return rng.choice(_QUESTIONS[split][sign]).format(a=first, b=second), str(value)


def _event(rng: random.Random, known: World, split: Split) -> tuple[str, str]:
    event = rng.choice(list(known.events))
    day, time = known.events[event]
    asked, answer = rng.choice((("day", day), ("hour", time)))
    return rng.choice(_QUESTIONS[split][asked]).format(name=event), answer


def _company(rng: random.Random, known: World, split: Split) -> tuple[str, str]:
    company = rng.choice(list(known.companies))
    founder, city = known.companies[company]
    asked, answer = rng.choice((("founder", founder), ("city", city)))
    return rng.choice(_QUESTIONS[split][asked]).format(name=company), answer


def contains(text: str, value: str) -> bool:
    """Return whether ``text`` contains ``value`` as a separate word or number."""
    return re.search(rf"(?<![\w:.-]){re.escape(value)}(?![\w:])", text, re.IGNORECASE) is not None


def main() -> None:
    """Write ``office.sqlite``, ``train.jsonl`` and ``test.jsonl``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of the questions")
    parser.add_argument("--train", type=int, default=80, help="number of training questions")
    parser.add_argument("--test", type=int, default=160, help="number of test questions")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    write_office(options.folder / "office.sqlite")
    counts: dict[Split, int] = {"train": options.train, "test": options.test}
    for split, count in counts.items():
        try:
            tasks = make_tasks(split, count, options.seed)
        except ValueError as error:
            sys.exit(f"{split}: {error}")
        write_tasks(options.folder / f"{split}.jsonl", tasks)


if __name__ == "__main__":
    main()
