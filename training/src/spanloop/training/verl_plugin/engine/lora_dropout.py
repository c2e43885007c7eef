# pyright: basic
"""Dropout before the low-rank matrices of LoRA, which verl's FSDP engine does not have.

The recipes write the rate to ``model.lora.dropout``, verl's key for Megatron, and name this module as the model's
``external_lib``; :mod:`.cpu_engine` imports it. Importing it makes each FSDP engine of this process read the key. PEFT
applies dropout in passes of a training step alone: engines compute log-probabilities in evaluation mode.
"""

from typing import Any

import torch
from peft.tuners.lora import LoraLayer
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine

_ENGINE: Any = FSDPEngine
_build_stock = _ENGINE._build_lora_module  # noqa: SLF001 - verl has no hook


def build_lora_module(self: Any, module: Any) -> Any:
    """Replace ``FSDPEngine._build_lora_module``: build it and set the dropout of each of its layers."""
    built = _build_stock(self, module)
    rate = float((getattr(self.model_config, "lora", None) or {}).get("dropout", 0.0))
    if rate:
        for layer in built.modules():
            if isinstance(layer, LoraLayer):
                for name in layer.lora_dropout:
                    layer.lora_dropout[name] = torch.nn.Dropout(rate)
    return built


_ENGINE._build_lora_module = build_lora_module  # noqa: SLF001
