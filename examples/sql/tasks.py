"""Write questions with the SQL that answers them, and demonstrations of the training questions.

    python tasks.py FOLDER [--seed N] [--train N] [--test N] [--source FOLDER]

``train.jsonl`` and ``test.jsonl`` share no SQL template and no value. The questions are about the shop of
``shop_database.py``, which is written too. With ``--source`` they come from another folder with one SQLite file, and
with lines of ``question`` and ``sql`` in ``train.jsonl`` and ``dev.jsonl``; only their templates are not shared.
``demonstrations.jsonl`` has a dialog of the agent for each training question.
"""

import argparse
import random
import re
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, get_args

from read_only_database import QueryError, ReadOnlyDatabase, only_database
from shop_database import write_shop
from shop_questions import Split, Template, ask, templates
from sql_tasks import Task, read_tasks, write_lines
from sql_templates import DIFFICULTIES, difficulty_of, held_out_templates, template_of
from sql_tools import OPENING, call_messages, definitions, question_message

SPLITS: Final[tuple[Split, ...]] = get_args(Split)
TEST_SHARE: Final = 0.3
"""Share of the templates that only the test has."""
SOURCE_FILES: Final = ("train.jsonl", "dev.jsonl")
_TRIES: Final = 1000

Tasks = dict[Split, list[Task]]


def shop_tasks(database: ReadOnlyDatabase, counts: dict[Split, int], seed: int) -> Tasks:
    """Return questions about the shop, in turn of each difficulty, and of each template of it.

    Raises:
        ValueError: Fewer different questions exist.
    """
    everything = {template_of(each.sql.format(value=0)): each for each in templates()}
    held_out = held_out_templates(everything, TEST_SHARE, seed)
    tasks: Tasks = {}
    for split in SPLITS:
        rng = random.Random(f"{split} {seed}")
        by_difficulty: dict[str, list[Template]] = defaultdict(list)
        for sql in rng.sample(sorted(everything), len(everything)):
            if (sql in held_out) == (split == "test"):
                by_difficulty[difficulty_of(sql)].append(everything[sql])
        turns = {difficulty: cycle(chosen) for difficulty, chosen in by_difficulty.items()}
        asked: dict[str, Task] = {}
        for number in range(counts[split]):
            difficulty = DIFFICULTIES[number % len(DIFFICULTIES)]
            for template in islice(turns[difficulty], _TRIES):
                question, sql = ask(template, split, rng)
                if question not in asked and has_result(database, sql):
                    asked[question] = Task(f"{split}/{number:04d}", question, sql, difficulty)
                    break
            else:
                raise ValueError(f"{split}: there are not {counts[split]} different questions; {number} were found")
        tasks[split] = list(asked.values())
    return tasks


def source_tasks(folder: Path, database: ReadOnlyDatabase, counts: dict[Split, int], seed: int) -> Tasks:
    """Return the questions of a folder, split anew by template; those without a result are left out.

    Args:
        folder: It has `SOURCE_FILES`.
        database: Of the questions.
        counts: The most tasks of each split.
        seed: Of the split.

    Raises:
        OSError: A file is missing.
        ValueError: A line is no task.
    """
    everything = [task for name in SOURCE_FILES for task in read_tasks(folder / name)]
    usable = [task for task in everything if has_result(database, task.sql)]
    print(f"{folder}: {len(everything)} questions, {len(everything) - len(usable)} of them without a result")
    held_out = held_out_templates((task.sql for task in usable), TEST_SHARE, seed)
    random.Random(f"tasks {seed}").shuffle(usable)
    return {
        split: [
            replace(task, id=f"{split}/{task.id}")
            for task in usable
            if (template_of(task.sql) in held_out) == (split == "test")
        ][: counts[split]]
        for split in SPLITS
    }


def has_result(database: ReadOnlyDatabase, sql: str) -> bool:
    """Return whether a query runs and returns more than nothing: a wrong query, too, can return no row, null or 0."""
    try:
        rows = database.query(sql)
    except QueryError:
        return False
    return any(value not in {None, 0} for row in rows for value in row)


def demonstration(database: ReadOnlyDatabase, task: Task) -> dict[str, Any]:
    """Return the dialog of an attempt that solves the task, in OpenAI's form for fine-tuning.

    A weight of 0 leaves the example dialogs out of the loss.
    """
    words = dict.fromkeys(re.findall(r"\w+", task.sql.lower()))
    tables = ", ".join(table for word in words for table in database.columns if table.lower() == word)
    calls = call_messages(tables, database.schema(tables), task.sql)
    opening = [message | ({"weight": 0} if message["role"] == "assistant" else {}) for message in OPENING]
    return {"messages": [*opening, question_message(task.question), *calls], "tools": definitions(database)}


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of split and questions")
    parser.add_argument("--train", type=int, default=384, help="number of training questions; default: %(default)s")
    parser.add_argument("--test", type=int, default=150, help="number of test questions; default: %(default)s")
    parser.add_argument("--source", type=Path, help="folder of other questions; default: the shop's")
    options = parser.parse_args()
    counts: dict[Split, int] = {"train": options.train, "test": options.test}
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.source:
            database = ReadOnlyDatabase(only_database(options.source))
            tasks = source_tasks(options.source, database, counts, options.seed)
        else:
            write_shop(options.folder / "shop.sqlite")
            database = ReadOnlyDatabase(options.folder / "shop.sqlite")
            tasks = shop_tasks(database, counts, options.seed)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    for split in SPLITS:
        write_lines(options.folder / f"{split}.jsonl", tasks[split])
    write_lines(options.folder / "demonstrations.jsonl", (demonstration(database, task) for task in tasks["train"]))


if __name__ == "__main__":
    main()
