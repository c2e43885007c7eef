# pyright: basic, reportPrivateImportUsage=false
"""Render prompts and compare weights of model folders, to check the tiny demo."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer


class ChatTemplate:
    """The chat template and the tokenizer of a model folder."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[int]:
        """Return the prompt's token ids of OpenAI messages and tool definitions."""
        ids: list[int] = self._tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=True, return_dict=False
        )
        return ids

    def text(self, ids: list[int]) -> str:
        """Return the text of token ids."""
        return str(self._tokenizer.decode(ids))


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
