"""Tasks for training and test, split by SQL template, and demonstrations of the training tasks.

Invariant: training and test share no template, and for the shop no value; each task's SQL has a result.
"""

import random
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, get_args

from read_only_database import ReadOnlyDatabase
from shop_questions import Split, Template, ask, templates
from sql_tasks import Task, has_result, read_tasks, tasks_with_result
from sql_templates import DIFFICULTIES, difficulty_of, held_out_templates, template_of
from sql_tools import OPENING, call_messages, definitions, question_message

SPLITS: Final[tuple[Split, ...]] = get_args(Split)
TEST_SHARE: Final = 0.3
"""Share of the templates that only the test has."""
SOURCE_FILES: Final = ("train.jsonl", "dev.jsonl")
_TRIES: Final = 1000

Tasks = dict[Split, list[Task]]


def shop_tasks(database: ReadOnlyDatabase, counts: Mapping[Split, int], seed: int) -> Tasks:
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


def source_tasks(folder: Path, database: ReadOnlyDatabase, counts: Mapping[Split, int], seed: int) -> Tasks:
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
    usable = tasks_with_result([task for name in SOURCE_FILES for task in read_tasks(folder / name)], database)
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


def demonstration(database: ReadOnlyDatabase, task: Task) -> dict[str, Any]:
    """Return the dialog of an attempt that solves the task, in OpenAI's form for fine-tuning.

    A weight of 0 leaves the example dialogs out of the loss.
    """
    words = dict.fromkeys(re.findall(r"\w+", task.sql.lower()))
    tables = ", ".join(table for word in words for table in database.columns if table.lower() == word)
    calls = call_messages(tables, database.schema(tables), task.sql)
    opening = [message | ({"weight": 0} if message["role"] == "assistant" else {}) for message in OPENING]
    return {"messages": [*opening, question_message(task.question), *calls], "tools": definitions(database)}
