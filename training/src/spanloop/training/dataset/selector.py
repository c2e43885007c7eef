"""Selection of rows by a function of the user's: built into an installed package, or ``module:name``.

Invariant: the function decides only about rows that the job could train on otherwise, and sees them as they are stored.
A selection that is not one boolean for each row fails the job; nothing is trained on by guess.
"""

import traceback
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.plugins import Extension, ExtensionPoint, adapt_callable, callables, split_reference

from .rejections import Rejection

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
_OURS: Final = (__file__, callables.__file__)
"""Files of the frames above the user's function."""
_HOW_TO: Final = "docs/reference/extension-points.md has the form of a selection."


class Selector(Extension):
    """A selection of rows, with its options."""

    def select(self, rows: pl.DataFrame) -> pl.Series:
        """Return one boolean for each row of a frame with :data:`COLUMNS`: True keeps the row."""
        raise NotImplementedError


def selector_of_callable(function: Callable[..., object], what: str) -> type[Selector]:
    """Return the class of a callable from a frame to a boolean series."""
    return adapt_callable(function, Selector, method="select", arguments=("rows",), what=what)


SELECTOR_POINT: Final = ExtensionPoint[Selector](
    what="selection", group="spanloop.selections", base=Selector, built_in={}, adapt=selector_of_callable
)


class NamedSelector(NamedTuple):
    """A selector and the name that a job calls it by."""

    name: str
    select: Callable[[pl.DataFrame], pl.Series]


def load_selector(reference: str) -> NamedSelector:
    """Return the selector that a job's setting ``selector`` names, with its options.

    Raises:
        JobError: Nothing is called so, it cannot be imported, it is not a selection, or an option cannot be used.
    """
    try:
        return NamedSelector(split_reference(reference)[0], SELECTOR_POINT.find(reference).select)
    except ConfigurationError as error:
        raise JobError(f"selector: {error.what}", next_step=error.next_step) from error


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
    name, select = selector
    if rows.is_empty():
        return pl.Series(dtype=pl.Boolean)
    shown = rows.select(list(COLUMNS))
    try:
        mask = select(shown)
    except Exception as error:  # the border to a user's code
        frames = traceback.extract_tb(error.__traceback__)
        place = next((frame for frame in frames if frame.filename not in _OURS), frames[-1])
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
