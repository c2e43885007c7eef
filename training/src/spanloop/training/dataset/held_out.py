"""Hold groups of a job's dataset out of its training, for the gate after it and the validation loss during it.

Invariant: accepted rows, rejected rows and held-out rows are the input; a held-out row is counted as rejected for
``held_out``. Groups are held out whole, and the same seed holds out the same ones of the same groups in every stage.
"""

from typing import Final

import polars as pl

from spanloop.foundation.errors import JobError
from spanloop.training.recipes.base import LearnsFrom, Recipe

from .rejections import Rejection
from .seeded_order import seeded_hash
from .selection import Selection
from .tally import Tally

HELD_OUT_NAME: Final = "held_out.parquet"
_TASK: Final = "task"


def hold_out(selection: Selection, recipe: Recipe, *, share: float, seed: int) -> Selection:
    """Move a share of the groups, at least one, from ``rows`` to ``held_out``.

    Args:
        selection: Of all rows.
        recipe: The recipe.
        share: Of the groups, 0 to 0.5; 0 returns the selection as it is. An episode without a group is one of its own.
        seed: Of the choice.

    Raises:
        JobError: There is only one group.
    """
    if share == 0 or selection.rows.is_empty():
        return selection
    rows = selection.rows.with_columns(_task().alias(_TASK))
    tasks = sorted(rows[_TASK].unique(), key=lambda task: seeded_hash(task, seed))
    if len(tasks) == 1:
        raise JobError(
            "The rows of this stage are of one group, so none can be held out for its validation loss or the gate "
            "after it.",
            next_step="Select more tasks, or train without them: --held-out-share 0, and no --test-freq.",
        )
    count = min(len(tasks) - 1, max(1, round(share * len(tasks))))
    is_held_out = pl.col(_TASK).is_in(tasks[:count])
    held_out = rows.filter(is_held_out)
    distinct = held_out.unique("trajectory_id").height if recipe.learns_from is LearnsFrom.PAIRS else held_out.height
    return selection._replace(
        rows=rows.filter(~is_held_out).drop(_TASK),
        held_out=held_out.drop(_TASK),
        row_tally=_without(selection.row_tally, distinct),
        episode_tally=_without(selection.episode_tally, held_out["episode_id"].n_unique()),
        group_tally=_without(selection.group_tally, count if recipe.has_groups else 0),
    )


def _task() -> pl.Expr:
    """Return the group of a row before it was split into parts (``dataset_groups``); an episode without one is its own.

    A group whose own name ends like a part's is taken for one, so two groups may be held out together.
    """
    whole = pl.col("group_id").str.replace(r"#\d+$", "")
    return pl.when(whole == "").then(pl.col("episode_id")).otherwise(whole)


def _without(tally: Tally, count: int) -> Tally:
    rejected = dict(tally.rejected) | ({Rejection.HELD_OUT.value: count} if count else {})
    return Tally(tally.accepted - count, rejected)
