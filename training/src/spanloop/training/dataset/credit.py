"""Step by step: which tokens the loss leaves out, and the advantage of each token.

Invariant: ``loss_mask`` and ``advantages`` run parallel to ``response_token_ids``; an advantage is zero where the mask
is. A row whose steps cannot be told apart is rejected where they would have to be.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from spanloop.converters.credit import StepFault, attributed_weights, is_policys_mistake
from spanloop.converters.enums import FaultOwner
from spanloop.training.recipes.choices import Credit

from .rejections import Rejection

_STEPS = ("first_step", "last_step", "sampled_steps", "sampled_starts", "sampled_ends")
_FAULTS = ("fault_steps", "fault_classes", "fault_owners", "fault_is_recovered")
Faults = Mapping[int, Sequence[StepFault]]
"""What went wrong in an episode, by step."""


class _SampledStep(NamedTuple):
    """The tokens of the response that one step sampled."""

    step: int
    start: int
    end: int


def mask_steps(checked: pl.DataFrame, is_masking: Callable[[Iterable[StepFault]], bool] | None) -> pl.DataFrame:
    """Set the loss mask to 0 on the steps whose faults are ``is_masking``.

    Args:
        checked: Rows of the query ``training_trajectories`` with ``reason``, empty where the row can be trained on.
        is_masking: Whether a step with these faults is left out; None masks nothing.

    Returns:
        The rows with the new mask and ``reason``, and with ``masked_steps`` and ``masked_tokens``, the numbers of steps
        and tokens that were trained on before.
    """
    checked = checked.with_columns(masked_steps=pl.lit(0, pl.UInt32), masked_tokens=pl.lit(0, pl.UInt32))
    if is_masking is None:
        return checked
    changes: list[dict[str, Any]] = []
    faulty = checked.with_row_index("row").filter((pl.col("reason") == "") & (pl.col("fault_steps").list.len() > 0))
    for row in faulty.select("row", *_STEPS, *_FAULTS, tokens=pl.col("loss_mask").list.len()).iter_rows(named=True):
        faults = _faults(row)
        steps = _sampled_steps(row)
        if steps is None:
            if any(is_masking(here) or is_policys_mistake(here) for here in _in_row(faults, row)):
                changes.append({"row": row["row"], "new_reason": Rejection.UNKNOWN_STEP_POSITIONS.value})
            continue
        masked = [step for step in steps if is_masking(faults.get(step.step, ()))]
        if masked:
            changes.append({"row": row["row"]} | _masked(checked["loss_mask"][row["row"]].to_list(), masked))
    return _replace(
        checked,
        changes,
        {
            "loss_mask": pl.List(pl.UInt8),
            "reason": pl.String(),
            "masked_steps": pl.UInt32(),
            "masked_tokens": pl.UInt32(),
        },
    )


def token_advantages(rows: pl.DataFrame, credit: Credit) -> pl.DataFrame:
    """Return the column ``advantages`` of rows with ``advantage``, their episode's; null where that is null."""
    broadcast = (pl.col("loss_mask").cast(pl.List(pl.Float64)) * pl.col("advantage")).cast(pl.List(pl.Float32))
    advantages = rows.select(advantages=pl.when(pl.col("advantage").is_not_null()).then(broadcast))
    if credit is Credit.BROADCAST:
        return advantages
    if credit in {Credit.PROCESS, Credit.PROCESS_GRPO}:
        return _with_step_advantages(advantages, rows)
    changes: list[dict[str, Any]] = []
    faulty = rows.with_row_index("row").filter(pl.col("fault_steps").list.len() > 0)
    columns = ("row", "loss_mask", "advantage", *_STEPS, *_FAULTS)
    for row in faulty.select(columns, tokens=pl.col("loss_mask").list.len()).iter_rows(named=True):
        weights = attributed_weights(row["advantage"], _faults(row))
        values = np.array(row["loss_mask"], dtype=np.float64) * row["advantage"]
        steps = _sampled_steps(row)
        if steps is None:
            values *= weights.elsewhere
        for step in steps or ():
            values[step.start : step.end] *= weights.at(step.step)
        changes.append({"row": row["row"], "new_advantages": values.tolist()})
    return _replace(advantages, changes, {"advantages": pl.List(pl.Float32)})


def _with_step_advantages(advantages: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    changes: list[dict[str, Any]] = []
    scored = rows.with_row_index("row").filter(
        pl.col("step_advantages").is_not_null() & pl.col("advantage").is_not_null()
    )
    columns = ("row", "loss_mask", "advantage", "step_advantages", "sampled_starts", "sampled_ends")
    for row, mask, advantage, of_steps, starts, ends in scored.select(columns).iter_rows():
        values = np.full(len(mask), advantage)
        # a row without the positions of its steps has one advantage
        for value, start, end in zip(of_steps, starts or [0], ends or [len(mask)], strict=True):
            values[start:end] += value
        changes.append({"row": row, "new_advantages": (values * mask).tolist()})
    return _replace(advantages, changes, {"advantages": pl.List(pl.Float32)})


def _masked(mask: list[int], steps: Sequence[_SampledStep]) -> dict[str, Any]:
    before = sum(mask)
    trained = sum(any(mask[step.start : step.end]) for step in steps)
    for step in steps:
        mask[step.start : step.end] = [0] * (step.end - step.start)
    after = sum(mask)
    return {
        "new_loss_mask": mask,
        "new_reason": None if after else Rejection.ALL_STEPS_MASKED.value,
        "new_masked_steps": trained,
        "new_masked_tokens": before - after,
    }


def _faults(row: Mapping[str, Any]) -> Faults:
    faults: dict[int, list[StepFault]] = defaultdict(list)
    for step, error_class, owner, is_recovered in zip(*(row[name] for name in _FAULTS), strict=True):
        faults[step].append(StepFault(error_class, FaultOwner(owner), bool(is_recovered)))
    return faults


def _sampled_steps(row: Mapping[str, Any]) -> list[_SampledStep] | None:
    """Return which step sampled which tokens; None where the converter did not record it."""
    if row["sampled_steps"]:
        return [_SampledStep(*step) for step in zip(*(row[name] for name in _STEPS[2:]), strict=True)]
    if row["first_step"] == row["last_step"]:
        return [_SampledStep(row["first_step"], 0, row["tokens"])]
    return None


def _in_row(faults: Faults, row: Mapping[str, Any]) -> list[Sequence[StepFault]]:
    return [here for step, here in faults.items() if row["first_step"] <= step <= row["last_step"]]


def _replace(frame: pl.DataFrame, changes: list[dict[str, Any]], types: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Replace the values of the columns ``types`` by those of ``changes`` (``row``, ``new_…``) that are not null."""
    schema = {"row": pl.get_index_type()} | {f"new_{name}": dtype for name, dtype in types.items()}
    changed = pl.DataFrame(changes, schema=schema, orient="row")
    return (
        frame.with_row_index("row")
        .join(changed, on="row", how="left", maintain_order="left")
        .with_columns(pl.coalesce(f"new_{name}", name).alias(name) for name in types)
        .select(frame.columns)
    )
