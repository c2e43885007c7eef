"""Rows from dialog files: demonstrations that no span recorded.

Invariant: an entry of a file is accepted as so many rows as its weight says, or rejected once with a reason. The same
files, weights and seed give the same rows.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import polars as pl

from ...spec.row_source import RowSource
from ..manifest import DialogFileFacts, sha256_of
from ..seeded_order import seeded_hash
from .dialog_files import Dialog, DialogFile, parse_dialog_file, read_dialogs
from .rendering import NO_TOKENS, Renderer, RenderingError


def dialog_file_facts(dialogs: Iterable[str]) -> tuple[DialogFileFacts, ...]:
    """Return what identifies the files.

    Raises:
        ConfigurationError: A file does not exist, or a weight is not positive.
    """
    files = [parse_dialog_file(text) for text in dialogs]
    return tuple(
        DialogFileFacts(path=str(file.path), sha256=sha256_of(file.path), weight=file.weight) for file in files
    )


def dialog_rows(
    dialogs: Sequence[str], renderer: Renderer, schema: pl.Schema, *, seed: int, now: datetime
) -> pl.DataFrame:
    """Return the rows of dialog files in the columns of ``schema``.

    Args:
        dialogs: ``PATH`` or ``PATH=WEIGHT`` of each file.
        renderer: Of the base model.
        schema: Of the frame that the rows are appended to.
        seed: Decides which dialogs a weight below one takes.
        now: Start of the rows; a file has no time, so its rows have no age.

    Raises:
        ConfigurationError: A file cannot be read.
        JobError: The base's tokenizer cannot be loaded.
    """
    rows: list[dict[str, Any]] = []
    for place, text in enumerate(dialogs):
        file = parse_dialog_file(text)
        for entry in read_dialogs(file.path):
            identity = f"dialog:{place}:{entry.number}"
            if entry.dialog is None:
                rows.append(_rejected(identity, entry.reason))
            else:
                rows += _entry_rows(identity, entry.dialog, _copies(file, entry.number, seed), renderer)
    common = {"started_at": now, "outcome": "success", "decided_by": "", "source": RowSource.DIALOG.value}
    return pl.DataFrame([{**dict.fromkeys(schema), **row, **common} for row in rows], schema=schema, orient="row")


def _copies(file: DialogFile, number: int, seed: int) -> int:
    """Return how many rows a dialog is: the weight, its fraction decided by a hash of file, entry and seed."""
    share = int.from_bytes(seeded_hash(f"{file.path.name}/{number}", seed), "big") / 2**64
    return int(file.weight) + (share < file.weight % 1)


def _entry_rows(identity: str, dialog: Dialog, copies: int, renderer: Renderer) -> list[dict[str, Any]]:
    if not copies:
        return [_rejected(identity, "left_out_by_weight")]
    steps = [number if trained else None for number, trained in enumerate(dialog.is_trained)]
    try:
        rendered = renderer.rows(dialog.messages, steps, dialog.tools)
    except RenderingError as error:
        return [_rejected(identity, error.reason)]
    return [_row(identity, number) | row.columns() for number, row in enumerate(rendered * copies)]


def _rejected(identity: str, reason: str) -> dict[str, Any]:
    return _row(identity, 0) | NO_TOKENS.columns() | {"is_trainable": False, "untrainable_reason": reason}


def _row(identity: str, number: int) -> dict[str, Any]:
    return {
        "episode_id": identity,
        "revision": 0,
        "task_id": "",
        "group_id": identity,
        "reward": None,
        "trajectory_id": f"{identity}/{number}",
        "row_number": number,
        "is_trainable": True,
        "untrainable_reason": "",
        "policy_versions": [""],
        "fault_steps": [],
        "fault_classes": [],
        "fault_owners": [],
        "fault_is_recovered": [],
        "marks": [],
    }
