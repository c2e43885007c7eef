"""Rebuild the rows of ``gpu.py`` from a real airline agent's episodes.

    python benchmarks/gpu_rows.py rows.parquet [--tasks 8] [--attempts 4] [--many 16] [--airline FILE]

The episodes are told as spans with captures and converted (``merge.py``), so a row has the tokens that training would
get. Set ``tasks`` has the first tasks with enough attempts. Set ``one_task`` has many attempts at one task: episodes of
as many tasks, told with the opening of the first, because no task was attempted so often.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import polars as pl
from airline.script import Script, read_scripts
from gpu_training.rows import ONE_TASK, SCHEMA, TASKS, row_tokens, take_tasks
from merge import DATA, Story, find_tokenizer, made_up

LONGEST_ROW: Final = 10_240
"""Tokens; tasks with a longer row are left out."""


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--attempts", type=int, default=4, help="of each task")
    parser.add_argument("--many", type=int, default=16, help="attempts of the set with one task")
    parser.add_argument("--airline", type=Path, default=DATA / "tau_airline" / "trajectories.jsonl.gz")
    parser.add_argument("--tokenizer", type=Path, help="a folder with a tokenizer.json, instead of SmolLM2's")
    options = parser.parse_args()
    scripts = read_scripts(options.airline) if options.airline.exists() else made_up(120, options.airline)
    several = _rows(TASKS, _attempts(scripts, options.attempts, tasks=3 * options.tasks), options.tokenizer)
    alike = [replace(each, opening=scripts[0].opening, task_id=scripts[0].task_id) for each in scripts[: options.many]]
    rows = pl.concat([_short_tasks(several, options.tasks), _rows(ONE_TASK, alike, options.tokenizer)])
    rows.write_parquet(options.target, compression="zstd", compression_level=19)
    for (name,), part in rows.group_by("set", maintain_order=True):
        lengths: list[int] = row_tokens(part).to_list()
        print(name, f"{part.height} rows of up to {max(lengths):,} tokens, {sum(lengths):,} together")
    print(f"{options.target}: {options.target.stat().st_size:,} bytes")


def _attempts(scripts: Sequence[Script], attempts: int, *, tasks: int) -> list[Script]:
    """Return as many attempts of each of the first tasks that have enough."""
    by_task: dict[str, list[Script]] = {}
    for script in scripts:
        by_task.setdefault(script.task_id, []).append(script)
    enough = [each[:attempts] for each in by_task.values() if len(each) >= attempts]
    return [script for each in enough[:tasks] for script in each]


def _short_tasks(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    long = rows.filter(row_tokens(rows) > LONGEST_ROW)["group_id"].implode()
    return take_tasks(rows.filter(~pl.col("group_id").is_in(long)), count)


def _rows(name: str, scripts: Sequence[Script], tokenizer: Path | None) -> pl.DataFrame:
    story = Story(find_tokenizer(tokenizer, scripts))
    for number, script in enumerate(scripts):
        story.tell(f"{number + 1:032x}", script)
    rows = story.convert().trajectories.sort("episode_id", "row_number")
    session = pl.col("episode_id").rank("dense").over("group_id").cast(pl.Int64) - 1
    return rows.with_columns(pl.lit(name).alias("set"), session=session).select(SCHEMA.names()).cast(SCHEMA)


if __name__ == "__main__":
    main()
