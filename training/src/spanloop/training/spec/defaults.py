"""Defaults of a training job's settings, each with the paper or the measurement that it comes from."""

from typing import Final

LEARNING_RATE: Final = 1e-6
"""Of a recipe that states none."""
CLIP_GRADIENT: Final = 1.0
"""verl's default."""
MAX_CHECKPOINTS: Final = 2
"""The newest and the one before it, so that a kill while saving loses one interval."""


LORA_ALPHA: Final = 32
"""As in LoRA Without Regret (Schulman et al. 2025), whose learning rates are of this scale at every rank."""
MAX_ADAPTER_RANK: Final = 512
"""The largest rank of an adapter that vLLM 0.32 serves (``MaxLoRARanks``)."""
LORA_LEARNING_RATE: Final = 10.0
"""Times the learning rate of full weights: the best one was about ten times as high in supervised training and in
policy gradients, at every rank (LoRA Without Regret, Schulman et al. 2025)."""
MICRO_BATCH_TOKENS: Final = 2048
"""The activations of a micro-batch are a job's peak of memory: about 1.3 MB a token for a model of 135M parameters, and
7 GB for the whole job (measured); the memory of a small machine."""
HELD_OUT_SHARE: Final = 0.1
"""The tenth part that is customary for validation."""
MAX_PASSES: Final = 4.0
"""Up to four passes over the same text train nearly as well as new text (Muennighoff et al. 2023, "Scaling
Data-Constrained Language Models")."""
STALL_MINUTES: Final = 120.0
"""Four times gloo's own limit for a collective operation (PyTorch: 30 minutes), which fails by itself; beyond it
nothing in verl notices, as when a node with TransferQueue's storage dies."""
