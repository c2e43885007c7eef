"""Estimate the peak of memory of a training job from the shape of its model, without loading it.

Weights, gradients and Adam's two moments are float32: 4 + 4 + 8 bytes a parameter. The forward pass computes on a copy
of the weights in ``b`` bytes (2 for bfloat16, 4 for float32). One token of a micro-batch keeps, for its backward pass,
``16 h + b (7 h + 2 k + 4 i)`` bytes in each layer: two norms in float32; the inputs of the projections, queries, keys,
values and their sum; four tensors of the feed-forward width (``h`` hidden, ``k`` key-value, ``i`` intermediate size).
With gradient checkpointing (CUDA) it keeps ``b h`` for each layer, and one layer as above. Its logits and their
gradient are ``2 b v`` bytes (``v`` vocabulary). The count of saved tensors follows Korthikanti et al. 2022, "Reducing
Activation Recomputation in Large Transformer Models", section 4, without attention scores, which are never stored, and
with a gated feed-forward network. With LoRA only its matrices have gradients and moments. With several ranks each keeps
its own compute copy, activations and process. SmolLM2-135M: 1.1 MB a token by the formula, 1.3 MB measured.
"""

import math
from pathlib import Path
from typing import Any, Final, NamedTuple

from .models.tokenizer_files import read_json
from .models.weights import check_weights

PROCESSES_BYTES: Final = 2_000_000_000
"""Ray's daemons, the trainer and the worker with their imports, measured without the model."""
RANK_BYTES: Final = 1_000_000_000
"""One more worker with its imports."""
_FLOAT32_BYTES: Final = 4
_BFLOAT16_BYTES: Final = 2


class ModelShape(NamedTuple):
    """Sizes of a transformer that its memory depends on."""

    parameters: int
    layers: int
    hidden: int
    key_value: int
    """Width of keys, and of values: key-value heads times head size."""
    intermediate: int
    vocabulary: int


class MemoryEstimate(NamedTuple):
    """Bytes of a job at its peak, of all its ranks together."""

    weights: int
    gradients: int
    adam: int
    compute_copy: int
    """The weights in the precision of the forward pass, once for each rank."""
    activations: int
    """Of one micro-batch of each rank, logits included."""
    reference: int
    """The base in float32 and in the precision of the forward pass, which a KL loss compares with; 0 without one."""
    critic: int
    """The weights, gradients, moments and compute copy of ppo's value model; 0 without one."""
    processes: int = PROCESSES_BYTES

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


def read_shape(folder: Path) -> ModelShape:
    """Read the shape of the Hugging Face model in ``folder``.

    Raises:
        JobError: The folder has no configuration or its weights are incomplete.
    """
    config = read_json(folder / "config.json")
    text: dict[str, Any] = config.get("text_config") or config
    hidden, heads = int(text["hidden_size"]), int(text.get("num_attention_heads") or 1)
    head = int(text.get("head_dim") or hidden // heads)
    tensors = check_weights(folder).tensors
    shape = ModelShape(
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        layers=int(text["num_hidden_layers"]),
        hidden=hidden,
        key_value=int(text.get("num_key_value_heads") or heads) * head,
        intermediate=int(text.get("intermediate_size") or 4 * hidden),
        vocabulary=int(text["vocab_size"]),
    )
    return shape if shape.parameters else shape._replace(parameters=_counted(shape))


def _counted(shape: ModelShape) -> int:
    """Count the matrices of a decoder; weights that are not safetensors have no header to read."""
    layer = shape.hidden * (2 * shape.hidden + 2 * shape.key_value + 3 * shape.intermediate)
    return shape.layers * layer + 2 * shape.vocabulary * shape.hidden


def _adapter_parameters(shape: ModelShape, rank: int) -> int:
    """Count two matrices for each projection: ``rank`` times the sum of its widths."""
    widths = 9 * shape.hidden + 2 * shape.key_value + 3 * shape.intermediate
    return shape.layers * rank * widths


def estimate_memory(
    shape: ModelShape,
    *,
    micro_batch_tokens: int,
    bfloat16: bool,
    recomputes: bool = False,
    has_reference: bool = False,
    ranks: int = 1,
    lora_rank: int = 0,
    has_critic: bool = False,
) -> MemoryEstimate:
    """Return the estimate of a job.

    Args:
        shape: The model.
        micro_batch_tokens: Tokens of one forward pass.
        bfloat16: Whether the forward pass is in bfloat16, else in float32.
        recomputes: Whether gradient checkpointing is on.
        has_reference: Whether the loss has a KL term to the base.
        ranks: Processes that hold a part of weights, gradients and moments each.
        lora_rank: Of the matrices that train instead of the weights; 0 when these train. The base of the KL term is
            then the same model without them.
        has_critic: Whether a value model of the same shape is trained too, before each update of the policy.
    """
    size = _BFLOAT16_BYTES if bfloat16 else _FLOAT32_BYTES
    trained = _adapter_parameters(shape, lora_rank) if lora_rank else shape.parameters
    layer = 4 * _FLOAT32_BYTES * shape.hidden + size * (7 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate)
    layers = layer + shape.layers * size * shape.hidden if recomputes else shape.layers * layer
    return MemoryEstimate(
        weights=_FLOAT32_BYTES * shape.parameters,
        gradients=_FLOAT32_BYTES * trained,
        adam=2 * _FLOAT32_BYTES * trained,
        compute_copy=ranks * size * shape.parameters,
        activations=ranks * micro_batch_tokens * (layers + 2 * size * shape.vocabulary),
        reference=(_FLOAT32_BYTES + ranks * size) * shape.parameters if has_reference and not lora_rank else 0,
        processes=PROCESSES_BYTES + (ranks - 1) * RANK_BYTES,
        critic=(4 * _FLOAT32_BYTES + ranks * size) * shape.parameters if has_critic else 0,
    )
