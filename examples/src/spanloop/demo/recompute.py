# pyright: basic, reportPrivateImportUsage=false
"""Computes again what the loop claims: prompt tokens, logprobs, whether weights differ. Reads model folders only."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from spanloop.training.logprob_agreement import logprob_agreement

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl


def chat_renderer(folder: Path) -> "Callable[[list[dict[str, Any]], list[dict[str, Any]]], list[int]]":
    """A function from OpenAI messages and tool definitions to the prompt's token ids, by the folder's chat template."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        ids: list[int] = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, return_dict=False
        )
        return ids

    return render


def weights_differ(one: Path, other: Path) -> tuple[int, int]:
    """How many tensors of two folders of the same architecture differ, and how many there are."""
    first, second = _tensors(one), _tensors(other)
    shared = first.keys() & second.keys()
    differing = sum(not torch.equal(first[name].float(), second[name].float()) for name in shared)
    return differing, len(shared)


def logprob_gaps(rows: "pl.DataFrame", folders: list[Path]) -> list[float]:
    """For each model folder, the mean absolute difference between its logprobs and the captured ones, in nats.

    Args:
        rows: ``prompt_token_ids``, ``response_token_ids`` and ``logprobs`` of sampled steps.
        folders: Models to recompute with, in float32.
    """
    return [logprob_agreement(folder, rows).mean for folder in folders]


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found
