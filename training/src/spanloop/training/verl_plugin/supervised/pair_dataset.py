# pyright: basic
"""Preference pairs for verl's SFT trainer: an item is a pair, and a batch is all rows of its pairs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl
import torch
from torch.utils.data import Dataset

from spanloop.training.dataset.pairs import Side


class PairRow(NamedTuple):
    """One row of one side of a pair."""

    number: int
    """Of the row in the file."""
    is_chosen: bool
    prompt: list[int]
    response: list[int]
    loss_mask: list[int]


class PairDataset(Dataset[list[PairRow]]):
    """The pairs of a dataset file, by ``pair_id``."""

    def __init__(self, parquet_files: Any, *_: Any, **__: Any) -> None:
        path = parquet_files if isinstance(parquet_files, str) else parquet_files[0]
        columns = ["pair_id", "side", "prompt_token_ids", "response_token_ids", "loss_mask"]
        self._pairs: list[list[PairRow]] = []
        last = None
        for number, (pair, side, *tokens) in enumerate(pl.read_parquet(path, columns=columns).rows()):
            if pair != last:
                self._pairs.append([])
                last = pair
            self._pairs[-1].append(PairRow(number, side == Side.CHOSEN, *tokens))

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, index: int) -> list[PairRow]:
        return self._pairs[index]

    @property
    def row_count(self) -> int:
        """The number of rows of all pairs."""
        return sum(map(len, self._pairs))


def collate_pairs(pairs: Sequence[Sequence[PairRow]]) -> dict[str, torch.Tensor]:
    """Return the rows of ``pairs`` as verl's nested tensors, and for each row ``row``, ``pair`` and ``is_chosen``."""
    rows = [row for pair in pairs for row in pair]
    tokens = [torch.tensor([*row.prompt, *row.response], dtype=torch.int64) for row in rows]
    masks = [torch.tensor([0] * len(row.prompt) + row.loss_mask, dtype=torch.int64) for row in rows]
    return {
        "input_ids": _nested(tokens),
        "position_ids": _nested([torch.arange(len(row), dtype=torch.int64) for row in tokens]),
        "loss_mask": _nested(masks),
        "row": torch.tensor([row.number for row in rows]),
        "pair": torch.tensor([number for number, pair in enumerate(pairs) for _ in pair]),
        "is_chosen": torch.tensor([row.is_chosen for row in rows]),
    }


def _nested(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)
