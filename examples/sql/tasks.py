"""Write questions with the SQL that answers them, and demonstrations of the training questions.

    python tasks.py FOLDER [--seed N] [--train N] [--test N] [--demonstrations N] [--source FOLDER]

``train.jsonl`` and ``test.jsonl`` share no SQL template and no value. The questions are about the shop of
``shop_database.py``, which is written too. With ``--source`` they come from another folder with one SQLite file, and
with lines of ``question`` and ``sql`` in ``train.jsonl`` and ``dev.jsonl``; only their templates are not shared.
``demonstrations.jsonl`` has the agent's dialog for the first training questions.
"""

import argparse
import sys
from pathlib import Path

from read_only_database import ReadOnlyDatabase, only_database
from shop_database import write_shop
from sql_tasks import write_lines
from task_sets import SPLITS, demonstration, shop_tasks, source_tasks


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="created if missing")
    parser.add_argument("--seed", type=int, default=0, help="seed of split and questions")
    parser.add_argument("--train", type=int, default=128, help="number of training questions; default: %(default)s")
    parser.add_argument("--test", type=int, default=150, help="number of test questions; default: %(default)s")
    parser.add_argument("--demonstrations", type=int, default=64, help="number of dialogs; default: %(default)s")
    parser.add_argument("--source", type=Path, help="folder of other questions; default: the shop's")
    options = parser.parse_args()
    counts = dict(zip(SPLITS, (options.train, options.test), strict=True))
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        if options.source:
            database = ReadOnlyDatabase(only_database(options.source))
            tasks = source_tasks(options.source, database, counts, options.seed)
        else:
            write_shop(options.folder / "shop.sqlite")
            database = ReadOnlyDatabase(options.folder / "shop.sqlite")
            tasks = shop_tasks(database, counts, options.seed)
        demonstrations = [demonstration(database, task) for task in tasks["train"][: options.demonstrations]]
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    for split in SPLITS:
        write_lines(options.folder / f"{split}.jsonl", tasks[split])
    write_lines(options.folder / "demonstrations.jsonl", demonstrations)


if __name__ == "__main__":
    main()
