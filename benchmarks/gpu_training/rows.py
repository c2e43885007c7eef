"""Rows of an agent's episodes for the GPU benchmark: stored, drawn, cut into turns, and as dataset files.

Invariant: a frame of rows has the columns of :data:`SCHEMA`; an attempt at a task is one or several rows.
"""

import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl
import torch

from spanloop.training.dataset.pairs import Side
from spanloop.training.recipes.base import LearnsFrom, Recipe

TASKS, ONE_TASK = "tasks", "one_task"
"""Sets of rows: several tasks with a few attempts each, and one task with many attempts."""
SCHEMA: Final = pl.Schema(
    {
        "set": pl.String(),
        "group_id": pl.String(),
        "session": pl.Int64(),
        "row_number": pl.Int64(),
        "prompt_token_ids": pl.List(pl.UInt32()),
        "response_token_ids": pl.List(pl.UInt32()),
        "loss_mask": pl.List(pl.UInt8()),
    }
)


class Rows(NamedTuple):
    """Rows of token ids, int64, and for each a mask of its last tokens that marks the trained ones."""

    sequences: list[torch.Tensor]
    masks: list[torch.Tensor]

    def first(self, count: int) -> "Rows":
        """Return the first rows."""
        return Rows(self.sequences[:count], self.masks[:count])

    @property
    def tokens(self) -> int:
        """Tokens of all rows, common prefixes counted for each."""
        return sum(map(len, self.sequences))


def read_rows(path: Path, name: str = TASKS) -> pl.DataFrame:
    """Return the rows of one set of the file that ``gpu_rows.py`` wrote."""
    return pl.read_parquet(path).filter(pl.col("set") == name)


def draw_rows(
    *, tasks: int, attempts: int, vocabulary: int, system_tokens: int = 200, turns: int = 3, turn_tokens: int = 20
) -> pl.DataFrame:
    """Return random rows with a common system prompt, a prompt for each task, and turns of action and observation."""
    rng = random.Random(0)

    def tokens(count: int) -> list[int]:
        return [rng.randrange(3, vocabulary) for _ in range(count)]

    system = tokens(system_tokens)
    rows: list[dict[str, object]] = []
    for task in range(tasks):
        prompt = system + tokens(turn_tokens)
        for attempt in range(attempts):
            response, mask = [], []
            for turn in range(turns):
                lengths = (turn_tokens + attempt % 3, 0 if turn == turns - 1 else turn_tokens)
                for is_action, length in zip((1, 0), lengths, strict=True):
                    response += tokens(length)
                    mask += [is_action] * length
            rows.append(
                {
                    "set": TASKS if tasks > 1 else ONE_TASK,
                    "group_id": f"task{task}",
                    "session": attempt,
                    "row_number": 0,
                    "prompt_token_ids": prompt,
                    "response_token_ids": response,
                    "loss_mask": mask,
                }
            )
    return pl.DataFrame(rows, schema=SCHEMA)


def take_tasks(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return the rows of the first tasks."""
    tasks = rows["group_id"].unique(maintain_order=True).to_list()[:count]
    return rows.filter(pl.col("group_id").is_in(tasks))


def row_tokens(rows: pl.DataFrame) -> pl.Series:
    """Return the number of tokens of each row."""
    return rows.select(n=pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len())["n"]


def merged_rows(rows: pl.DataFrame) -> Rows:
    """Return the rows as they are: all turns of an attempt in one row."""
    columns = ("prompt_token_ids", "response_token_ids", "loss_mask")
    prompts, responses, masks = (rows[name].to_list() for name in columns)
    return Rows(
        [torch.tensor(prompt + response) for prompt, response in zip(prompts, responses, strict=True)],
        [torch.tensor(mask, dtype=torch.int64) for mask in masks],
    )


def turn_rows(merged: Rows) -> Rows:
    """Return one row for each turn: everything before an action as its prompt, and the action."""
    turns = Rows([], [])
    for sequence, mask in zip(*merged, strict=True):
        offset = len(sequence) - len(mask)
        edges = [0, *(index for index in range(1, len(mask)) if mask[index] != mask[index - 1]), len(mask)]
        for begin, end in pairwise(edges):
            if mask[begin]:
                turns.sequences.append(sequence[: offset + end])
                turns.masks.append(torch.ones(end - begin, dtype=torch.int64))
    return turns


def write_dataset(rows: pl.DataFrame, recipe: Recipe, path: Path, *, vocabulary: int) -> None:
    """Write the rows as a job's dataset file; odd attempts of a task are good, even ones bad.

    Each token has the log-probability that a model with random weights gives it, about ``-log(vocabulary)``.
    """
    pairs = recipe.learns_from is LearnsFrom.PAIRS
    is_good = pl.col("session") % 2 == 1
    length = pl.col("response_token_ids").list.len()
    has_advantages = recipe.learns_from is LearnsFrom.ROWS and not recipe.needs_critic
    advantage = pl.when(is_good).then(0.5).otherwise(-0.5) if has_advantages else pl.lit(None)
    frame = rows.drop("set").with_columns(
        reward=is_good.cast(pl.Float64),
        logprobs=pl.lit(-math.log(vocabulary)).repeat_by(length),
        advantages=advantage.repeat_by(length) if has_advantages else pl.lit(None, pl.List(pl.Float64)),
        rewards=pl.lit(None, pl.List(pl.Float64)),
        age_versions=pl.lit(0),
        age_days=pl.lit(0.0),
        pair_id=pl.col("group_id").rank("dense").cast(pl.Int64) * 1000 + pl.col("session") // 2,
        side=pl.when(is_good).then(pl.lit(Side.CHOSEN.value)).otherwise(pl.lit(Side.REJECTED.value)),
    )
    (frame.sort("pair_id", "side", "row_number") if pairs else frame).write_parquet(path)


def cut_rows(rows: pl.DataFrame, limit_tokens: int) -> pl.DataFrame:
    """Return the rows without what follows their first ``limit_tokens`` tokens; rows left without an action go."""
    kept = limit_tokens - pl.col("prompt_token_ids").list.len().cast(pl.Int64)
    cut = rows.filter(kept > 0).with_columns(
        pl.col("response_token_ids", "loss_mask").list.head(pl.when(kept > 0).then(kept).otherwise(0))
    )
    return cut.filter(pl.col("loss_mask").list.sum() > 0)
