# pyright: basic
"""Dropout before the low-rank matrices of LoRA, which verl's FSDP engine does not have.

The recipes write the rate to ``model.lora.dropout``, verl's key for Megatron. PEFT applies dropout in passes of a
training step alone: engines compute log-probabilities in evaluation mode.
"""

from typing import Any

import torch
from peft.tuners.lora import LoraLayer


def set_lora_dropout(module: torch.nn.Module, model_config: Any) -> None:
    """Set the dropout of each adapted layer to the rate of verl's model configuration."""
    rate = float((getattr(model_config, "lora", None) or {}).get("dropout", 0.0))
    if not rate:
        return
    for layer in module.modules():
        if isinstance(layer, LoraLayer):
            for name in layer.lora_dropout:
                layer.lora_dropout[name] = torch.nn.Dropout(rate)
