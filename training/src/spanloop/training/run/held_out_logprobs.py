# pyright: basic, reportPrivateImportUsage=false
"""Score held-out rows under the versions before and after a stage, in a process of its own.

``python -m spanloop.training.run.held_out_logprobs ROWS SCORES BEFORE AFTER DEVICE``: torch and the weights leave the
memory with the process. One unpadded row at a time in float32, so neither a batch nor a precision changes a score.
"""

import sys
from pathlib import Path
from typing import Any, Final

import polars as pl
import torch
from transformers import AutoModelForCausalLM

from spanloop.training.run.logprob_agreement import response_logprobs
from spanloop.training.spec.choices import Device

_KEPT: Final = ("reward", "group_id", "pair_id", "side")


def score(rows: pl.DataFrame, before: Path, after: Path, device: Device) -> pl.DataFrame:
    """Return the scores of ``rows``, see :func:`spanloop.training.run.gate.judge`.

    A row that occurs in several pairs with the same mask is scored each time.
    """
    tokens = [int(sum(mask)) for mask in rows["loss_mask"].to_list()]
    return rows.select(_KEPT).with_columns(
        pl.Series("tokens", tokens, dtype=pl.Int64),
        pl.Series("before", _sums(rows, before, device), dtype=pl.Float64),
        pl.Series("after", _sums(rows, after, device), dtype=pl.Float64),
    )


def _sums(rows: pl.DataFrame, folder: Path, device: Device) -> list[float]:
    is_cuda = device is Device.CUDA or (device is Device.AUTO and torch.cuda.is_available())
    loader: Any = AutoModelForCausalLM
    model = loader.from_pretrained(folder, dtype=torch.float32)
    if is_cuda:
        model.cuda()
    model.eval()
    columns = ("prompt_token_ids", "response_token_ids", "loss_mask")
    return [
        float((response_logprobs(model, prompt, response) * mask).sum())
        for prompt, response, mask in rows.select(columns).iter_rows()
    ]


def main(rows: str, scores: str, before: str, after: str, device: str) -> None:
    """Read the rows, write their scores."""
    score(pl.read_parquet(rows), Path(before), Path(after), Device(device)).write_parquet(scores)


if __name__ == "__main__":
    main(*sys.argv[1:])
