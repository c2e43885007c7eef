# pyright: basic, reportPrivateImportUsage=false
"""Recompute prompt tokens, log-probabilities and weight differences from model folders, to check the tiny demo."""

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
    """Return a function from OpenAI messages and tool definitions to the prompt's token ids, by the chat template."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def render(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        ids: list[int] = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, return_dict=False
        )
        return ids

    return render


def count_changed_tensors(base: Path, trained: Path) -> tuple[int, int]:
    """Count the tensors that differ between two model folders of one architecture, and all tensors."""
    base_tensors, trained_tensors = _load_tensors(base), _load_tensors(trained)
    shared = base_tensors.keys() & trained_tensors.keys()
    differing = sum(not torch.equal(base_tensors[name].float(), trained_tensors[name].float()) for name in shared)
    return differing, len(shared)


def logprob_gaps(rows: "pl.DataFrame", folders: list[Path]) -> list[float]:
    """Return each model folder's mean absolute difference between its logprobs and the captured ones, in nats.

    Args:
        rows: ``prompt_token_ids``, ``response_token_ids`` and ``logprobs`` of sampled steps.
        folders: Models to recompute with, in float32.
    """
    return [logprob_agreement(folder, rows).mean for folder in folders]


def _load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors
