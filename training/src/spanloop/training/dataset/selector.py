"""Selection of rows by a function of the user's: built into an installed package, or ``module:name``.

Invariant: the function decides only about rows that the job could train on otherwise, and sees them as they are stored.
A selection that is not one boolean for each row fails the job; nothing is trained on by guess.
"""

import traceback
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.plugins import find_extension

from .rejections import Rejection

GROUP: Final = "spanloop.selections"
"""Entry points of such functions."""
Selector = Callable[[pl.DataFrame], pl.Series]
"""From the frame with :data:`COLUMNS` to a boolean series of its height: True keeps the row."""
COLUMNS: Final[Mapping[str, str]] = {
    "episode_id": "of the row's episode",
    "task_id": "empty without one",
    "group_id": "episodes of one task; empty without one",
    "started_at": "start of the episode, UTC",
    "reward": "of the episode; null without any",
    "outcome": "`success`, `failure` or `unknown`",
    "decided_by": "who caused the failure that decided a failed episode; else empty",
    "marks": "list of the episode's marks",
    "source": "`captured`, `rendered` or `dialog`",
    "trajectory_id": "of the row",
    "row_number": "of the row in its episode, from 0",
    "policy_version": "`name@version` that sampled the row; empty when not known",
    "prompt_token_ids": "list",
    "response_token_ids": "list, tool results included",
    "loss_mask": "list beside the response, 1 where the policy sampled the token",
    "logprobs": "list beside the response, of the sampler; may be empty",
    "fault_classes": "list of the episode's failures",
    "fault_owners": "list beside `fault_classes`",
    "age_versions": "versions between the row's policy and the base; null when not known",
    "age_days": "days since the start of the episode",
}
"""Columns of the frame, one row for each token row."""
_HOW_TO: Final = "docs/how-to/extend.md has the form of a selection."


class NamedSelector(NamedTuple):
    """A selector and the name that a job calls it by."""

    name: str
    function: Selector


def load_selector(name: str) -> NamedSelector:
    """Return the function that a job's setting ``selector`` names.

    Raises:
        JobError: Nothing is called so, it cannot be imported, or it is not callable.
    """
    try:
        selector = find_extension(name, group=GROUP, what="selection", built_in={})
    except ConfigurationError as error:
        raise JobError(f"selector: {error.what}", next_step=error.next_step) from error
    if not callable(selector):
        raise JobError(
            f"selector {name!r} is {type(selector).__name__}, expected a function of a polars frame.", next_step=_HOW_TO
        )
    return NamedSelector(name, cast("Selector", selector))


def apply_selector(checked: pl.DataFrame, selector: NamedSelector) -> pl.DataFrame:
    """Give the rows that ``selector`` leaves out the reason ``not_selected``.

    Args:
        checked: Rows with :data:`COLUMNS` and ``reason``, empty where the row can be trained on; only these are shown.
        selector: Is not called for no rows.

    Raises:
        JobError: The selector raised, or did not return one boolean for each row.
    """
    numbered = checked.with_row_index("row")
    shown = numbered.filter(pl.col("reason") == "")
    left_out = shown.filter(~_kept(shown, selector))["row"]
    is_left_out = pl.col("row").is_in(left_out.implode())
    reason = pl.when(is_left_out).then(pl.lit(Rejection.NOT_SELECTED.value)).otherwise(pl.col("reason"))
    return numbered.with_columns(reason=reason).drop("row")


def _kept(rows: pl.DataFrame, selector: NamedSelector) -> pl.Series:
    name, function = selector
    if rows.is_empty():
        return pl.Series(dtype=pl.Boolean)
    shown = rows.select(list(COLUMNS))
    try:
        mask = function(shown)
    except Exception as error:  # the border to a user's code
        place = traceback.extract_tb(error.__traceback__)[:2][-1]  # behind this frame the user's
        raise JobError(
            f"selector {name!r} failed over {rows.height} rows, in {place.filename}:{place.lineno}: "
            f"{type(error).__name__}: {error}",
            next_step="Repair it, or submit the job without selector.",
        ) from error
    problem = _problem(mask, rows.height)
    if problem:
        raise JobError(
            f"selector {name!r} returned {problem}; expected a polars Series of {rows.height} booleans.",
            next_step=_HOW_TO,
        )
    return mask


def _problem(mask: object, rows: int) -> str:
    if not isinstance(mask, pl.Series):
        return type(mask).__name__
    if mask.dtype != pl.Boolean:
        return f"a Series of {mask.dtype}"
    if len(mask) != rows:
        return f"{len(mask)} values"
    return f"{mask.null_count()} nulls" if mask.null_count() else ""
