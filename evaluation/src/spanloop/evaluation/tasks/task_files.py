"""The command of a program that generates tasks: write ``train.jsonl`` and ``test.jsonl`` from a seed."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

Split = Literal["train", "test"]
AnyTask = TypeVar("AnyTask", bound=NamedTuple)


def write_task_files(
    description: str | None,
    make_tasks: Callable[[Split, int, int], Sequence[AnyTask]],
    *,
    train: int = 96,
    test: int = 120,
    demonstrate: Callable[[AnyTask], dict[str, Any]] | None = None,
) -> None:
    """Read the command line of a ``tasks.py``, and write its files; exit with a sentence when there are too few tasks.

    Args:
        description: Of the command, for ``--help``.
        make_tasks: Returns the tasks of a split, from their number and the seed. ValueError: There are fewer.
        train: Default number of training tasks.
        test: Default number of test tasks.
        demonstrate: Returns the dialog that does a task, in OpenAI's form for fine-tuning; those of the first training
            tasks become ``demonstrations.jsonl``.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks; default: %(default)s")
    parser.add_argument("--train", type=int, default=train, help="number of training tasks; default: %(default)s")
    parser.add_argument("--test", type=int, default=test, help="number of test tasks; default: %(default)s")
    if demonstrate is not None:
        parser.add_argument("--demonstrations", type=int, default=64, help="number of dialogs; default: %(default)s")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    counts: dict[Split, int] = {"train": options.train, "test": options.test}
    for split, count in counts.items():
        try:
            tasks = make_tasks(split, count, options.seed)
        except ValueError as error:
            sys.exit(f"{split}: {error}")
        _write_lines(options.folder / f"{split}.jsonl", [task._asdict() for task in tasks])
        if split == "train" and demonstrate is not None:
            dialogs = [demonstrate(task) for task in tasks[: options.demonstrations]]
            _write_lines(options.folder / "demonstrations.jsonl", dialogs)


def _write_lines(path: Path, objects: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects), encoding="utf-8")
