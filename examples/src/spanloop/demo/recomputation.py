# pyright: basic, reportPrivateImportUsage=false
"""Render prompts and compare weights of model folders, to check the tiny demo."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable


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


def _load_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors
