# pyright: basic
"""SFT rows for verl as token ids, without a chat template."""

from typing import Any

import polars as pl
import torch
from torch.utils.data import Dataset

from ..sample_records import SAMPLE, sample_field


class SftDataset(Dataset[dict[str, torch.Tensor]]):
    """Rows of the dataset file for verl's SFT trainer: the loss mask is 1 on sampled tokens only."""

    def __init__(self, parquet_files: Any, *_: Any, **__: Any) -> None:
        path = parquet_files if isinstance(parquet_files, str) else parquet_files[0]
        columns = ["prompt_token_ids", "response_token_ids", "loss_mask"]
        self._rows = pl.read_parquet(path, columns=columns).rows()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        prompt, response, mask = self._rows[index]
        input_ids = torch.tensor([*prompt, *response], dtype=torch.int64)
        return {
            "input_ids": input_ids,
            "position_ids": torch.arange(len(input_ids), dtype=torch.int64),
            "loss_mask": torch.tensor([0] * len(prompt) + list(mask), dtype=torch.int64),
            SAMPLE: sample_field(index),
        }
