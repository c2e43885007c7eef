"""Models of the GPU benchmark: shapes of known ones with random weights, and the tiny model of the recipes."""

import shutil
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from spanloop.demo.tiny_model import build_tiny_model


class Size(NamedTuple):
    """The shape of a Qwen2.5 model (Qwen team 2024, table 1)."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    vocabulary: int = 151_936
    is_tied: bool = True
    """Whether the output head is the embedding."""
    lora_rank: int = 0
    """Of the job; 0 trains all weights."""

    @property
    def layer_parameters(self) -> int:
        """Parameters of the matrices of all layers."""
        key_value = self.key_heads * self.hidden // self.heads
        return self.layers * self.hidden * (2 * self.hidden + 2 * key_value + 3 * self.intermediate)

    @property
    def head_parameters(self) -> int:
        """Parameters of the output head."""
        return self.vocabulary * self.hidden


SIZES: Final = {
    "tiny": Size(2, 64, 128, 4, 2, vocabulary=400),
    "0.5b": Size(24, 896, 4_864, 14, 2),
    "1.5b": Size(28, 1_536, 8_960, 12, 2),
    "7b": Size(28, 3_584, 18_944, 28, 4, vocabulary=152_064, is_tied=False, lora_rank=16),
}


def make_model(size: Size, device: torch.device) -> Any:
    """Return a model in bfloat16 with random weights."""
    config = Qwen2Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_heads,
        max_position_embeddings=32_768,
        tie_word_embeddings=size.is_tied,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with device:
            return Qwen2ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def write_model(size: Size, folder: Path, device: torch.device) -> None:
    """Write a model with random weights and the tiny model's tokenizer; the token ids are all that counts."""
    if (folder / "config.json").exists():
        return
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    build_tiny_model(partial, training_steps=0)
    make_model(size, device).save_pretrained(partial)
    partial.rename(folder)
    if device.type == "cuda":
        torch.cuda.empty_cache()
