"""Estimate the peak of memory of a training job from the shape of its model, without loading it.

**On a CPU.** Weights, gradients and Adam's two moments are float32: 4 + 4 + 8 bytes a parameter; the moments take 4
with ``optimizer_dtype = bfloat16``. The forward pass computes on a copy of the weights in ``b`` bytes (2 for bfloat16,
4 for float32). One token of a micro-batch keeps, for its backward pass, ``16 h + b (7 h + 2 k + 4 i)`` bytes in each
layer: two norms in float32; the inputs of the projections, queries, keys, values and their sum; four tensors of the
feed-forward width (``h`` hidden, ``k`` key-value, ``i`` intermediate size). Its logits and their gradient are ``2 b v``
bytes (``v`` vocabulary). The count of saved tensors follows Korthikanti et al. 2022, "Reducing Activation Recomputation
in Large Transformer Models", section 4, without attention scores, which are never stored, and with a gated feed-forward
network. With LoRA only its matrices have gradients and moments. With several ranks each keeps its own compute copy,
activations and process. SmolLM2-135M: 1.1 MB a token by the formula, 1.3 MB measured.

**On GPUs**, one for each rank: the ranks share weights, gradients and moments. The compute copy is bfloat16, of two
layers (the one that computes and the next) and of what is outside the layers; without LoRA their gradients are as
large. Where all activations do not fit, checkpointing keeps ``4 h`` bytes for each computed token and layer, its input
and the result of its attention, and one layer as above. Logits exist for slices of 128 Mi of them: 1.6 GB with their
gradients, in float32. CUDA and its libraries take 1 GB. For 1.5 billion parameters and 32,768 computed tokens a pass
the formula gives 38 GB; nvidia-smi showed 44 GB on an H200, with what torch's allocator keeps. verl's stock engine,
which computes models with sliding windows, has all logits of a pass, and takes more. The host has the float32 weights
while they are loaded, and those of a KL loss's reference throughout, and the copy of a checkpoint while it is written.
With ``offload`` weights, gradients and moments are in the host's memory; while a model is loaded all of its float32
weights are on each GPU for a moment.

``micro_batch_tokens = auto`` takes what fits into 90 % of the free memory beside the other parts, at most 32,768.
"""

from typing import Final, NamedTuple, Protocol

from spanloop.training.recipes.base import Recipe

from ..spec.choices import OptimizerDtype
from ..spec.optimiser import Optimiser
from ..spec.run_settings import RunSettings
from .model_shape import ModelShape

PROCESSES_BYTES: Final = 2_000_000_000
"""Ray's daemons, the trainer and the worker with their imports, measured without the model."""
RANK_BYTES: Final = 1_000_000_000
"""One more worker with its imports."""
CUDA_BYTES: Final = 1_000_000_000
"""CUDA's context, cuBLAS's workspaces and NCCL's buffers."""
USABLE_SHARE: Final = 0.9
"""Of a GPU's free memory; fragments of torch's allocator take a part of the rest."""
BLOCK_LOGITS: Final = {"cpu": 128 * 1024 * 1024, "cuda": 256 * 1024 * 1024}
"""At a time (``token_logprobs``)."""
SLICE_LOGITS: Final = {"cpu": 8 * 1024 * 1024, "cuda": 64 * 1024 * 1024}
"""Of a block in float32 at a time, where torch computes their softmax. A GPU needs long slices to be busy."""
MAX_AUTO_TOKENS: Final = 32_768
"""The measured pass; longer ones do not fill a GPU better."""
_ACTIVATIONS_MARGIN: Final = 1.25
"""Of the activations of all layers by the formula; SmolLM2 takes 1.2 times as much on a CPU."""
_FLOAT32: Final = 4
_BFLOAT16: Final = 2


class JobSettings(Protocol):
    """The settings that memory depends on, of a job's spec or plan."""

    @property
    def recipe(self) -> Recipe: ...  # noqa: D102
    @property
    def optimiser(self) -> Optimiser: ...  # noqa: D102
    @property
    def run(self) -> RunSettings: ...  # noqa: D102


class MemoryFactors(NamedTuple):
    """What a job's memory depends on, besides model and micro-batch."""

    ranks: int = 1
    """Processes that hold a part of weights, gradients and moments each."""
    lora_rank: int = 0
    """Of the matrices that train instead of the weights; 0 when these train. The base of the KL term is then the same
    model without them."""
    has_reference: bool = False
    """Whether the loss has a KL term to the base."""
    has_critic: bool = False
    """Whether a value model of the same shape is trained too, before each update of the policy."""
    offload: bool = False
    """Whether weights, gradients and moments are in the host's memory; on GPUs only."""
    moment_bytes: int = _FLOAT32
    """Of one of Adam's two moments, for each parameter."""

    @classmethod
    def of(cls, settings: JobSettings) -> "MemoryFactors":
        """Return the factors of a job."""
        return cls(
            ranks=settings.run.ranks,
            lora_rank=settings.optimiser.lora_rank,
            has_reference=settings.recipe.needs_reference,
            has_critic=settings.recipe.needs_critic,
            offload=settings.run.offload,
            moment_bytes=_BFLOAT16 if settings.optimiser.optimizer_dtype is OptimizerDtype.BFLOAT16 else _FLOAT32,
        )

    @property
    def state_bytes(self) -> int:
        """Weights, gradients and both moments of a parameter that trains."""
        return 2 * _FLOAT32 + 2 * self.moment_bytes

    def trained(self, shape: ModelShape) -> int:
        """Return the number of parameters that have gradients and moments."""
        return shape.adapter_parameters(self.lora_rank) if self.lora_rank else shape.parameters


class MemoryEstimate(NamedTuple):
    """Bytes at the peak: of all ranks together in the host's memory, or of one rank on its GPU."""

    weights: int
    gradients: int
    adam: int
    compute_copy: int
    """The weights in the precision of the forward pass; on a GPU with their gradients. On a GPU's host the copy of a
    checkpoint while it is written: the weights twice, once in Hugging Face's format, and the moments."""
    activations: int
    """Of one micro-batch, logits included."""
    reference: int
    """The base of a KL loss; 0 without one."""
    critic: int
    """The weights, gradients, moments and compute copy of ppo's value model; 0 without one."""
    processes: int
    """The processes themselves, or CUDA and its libraries."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(self)


class GpuJobMemory(NamedTuple):
    """The memory of a job on GPUs."""

    gpu: MemoryEstimate
    host: MemoryEstimate


def estimate_on_cpu(
    shape: ModelShape, factors: MemoryFactors, *, micro_batch_tokens: int, bfloat16: bool
) -> MemoryEstimate:
    """Return the estimate of a job on a CPU.

    Args:
        shape: The model.
        factors: Of the job.
        micro_batch_tokens: Tokens of one forward pass.
        bfloat16: Whether the forward pass is in bfloat16, else in float32.
    """
    size, ranks = _BFLOAT16 if bfloat16 else _FLOAT32, factors.ranks
    token = shape.layers * _layer_bytes(shape, size) + 2 * size * shape.vocabulary
    is_copied = factors.has_reference and not factors.lora_rank
    return MemoryEstimate(
        weights=_FLOAT32 * shape.parameters,
        gradients=_FLOAT32 * factors.trained(shape),
        adam=2 * factors.moment_bytes * factors.trained(shape),
        compute_copy=ranks * size * shape.parameters,
        activations=ranks * micro_batch_tokens * token,
        reference=(_FLOAT32 + ranks * size) * shape.parameters if is_copied else 0,
        critic=(factors.state_bytes + ranks * size) * shape.parameters if factors.has_critic else 0,
        processes=PROCESSES_BYTES + (ranks - 1) * RANK_BYTES,
    )


def estimate_on_gpus(shape: ModelShape, factors: MemoryFactors, *, micro_batch_tokens: int) -> GpuJobMemory:
    """Return the estimate of a job on GPUs: of each GPU, and of the host."""
    weights, trained = _FLOAT32 * shape.parameters, factors.trained(shape)
    copy = _BFLOAT16 * (2 * shape.layer_parameters + shape.other_parameters)
    trained_copy = 2 * copy
    critic = factors.state_bytes * shape.parameters if factors.has_critic else 0
    is_copied = factors.has_reference and not factors.lora_rank
    # of one GPU, when they are there
    shared = 0.0 if factors.offload else 1 / factors.ranks
    gpu = MemoryEstimate(
        weights=int(shared * weights),
        gradients=int(shared * _FLOAT32 * trained),
        adam=int(shared * 2 * factors.moment_bytes * trained),
        compute_copy=copy if factors.lora_rank else trained_copy,
        activations=micro_batch_tokens * _gpu_token_bytes(shape) + _logits_bytes(shape),
        reference=0,
        critic=int(shared * critic) + (trained_copy if critic else 0),
        processes=CUDA_BYTES,
    )
    host = MemoryEstimate(
        weights=weights,
        gradients=_FLOAT32 * trained if factors.offload else 0,
        adam=2 * factors.moment_bytes * trained if factors.offload else 0,
        compute_copy=2 * weights + 2 * factors.moment_bytes * trained,
        activations=0,
        reference=weights if is_copied else 0,
        critic=critic if factors.offload else 0,
        processes=PROCESSES_BYTES + (factors.ranks - 1) * RANK_BYTES,
    )
    return GpuJobMemory(gpu, host)


def gpu_tokens(shape: ModelShape, factors: MemoryFactors, *, free_bytes: int) -> int:
    """Return the tokens of one forward pass that fit into a GPU's free memory; 0 when the rest does not fit."""
    usable = USABLE_SHARE * free_bytes
    fixed = estimate_on_gpus(shape, factors, micro_batch_tokens=0).gpu.total
    if usable < max(fixed, _FLOAT32 * shape.parameters + CUDA_BYTES):
        return 0
    return min(MAX_AUTO_TOKENS, int((usable - fixed) / _gpu_token_bytes(shape)))


class PassMemory(NamedTuple):
    """Bytes of a forward and backward pass on a GPU."""

    recomputed: int
    """Where each layer recomputes its activations; with the compute copy of the weights and its gradients."""
    layer: int
    """More for each layer that keeps them."""


def pass_memory(shape: ModelShape, *, tokens: int) -> PassMemory:
    """Return the memory of a pass over packed trees with fused layers."""
    copy = 2 * _BFLOAT16 * (2 * shape.layer_parameters + shape.other_parameters)
    # the layer's input and each projection's; queries, keys, values and the gate's two factors
    layer = _BFLOAT16 * (6 * shape.hidden + 2 * shape.key_value + 3 * shape.intermediate)
    return PassMemory(
        copy + tokens * _gpu_token_bytes(shape) + _logits_bytes(shape), int(_ACTIVATIONS_MARGIN * tokens * layer)
    )


def fits_all_activations(
    shape: ModelShape, factors: MemoryFactors, *, micro_batch_tokens: int, free_bytes: int
) -> bool:
    """Return whether a GPU's free memory has room for the activations of all layers, without checkpointing."""
    fixed = estimate_on_gpus(shape, factors, micro_batch_tokens=micro_batch_tokens).gpu.total
    activations = _ACTIVATIONS_MARGIN * micro_batch_tokens * shape.layers * _layer_bytes(shape, _BFLOAT16)
    return fixed + activations <= USABLE_SHARE * free_bytes


def _layer_bytes(shape: ModelShape, size: int) -> int:
    """Return the bytes that a token keeps in one layer for its backward pass."""
    return 4 * _FLOAT32 * shape.hidden + size * (7 * shape.hidden + 2 * shape.key_value + 4 * shape.intermediate)


def _logits_bytes(shape: ModelShape) -> int:
    """Return the bytes of a block of logits, and of a slice in float32 and its exponentials."""
    logits = MAX_AUTO_TOKENS * shape.vocabulary
    return _BFLOAT16 * min(BLOCK_LOGITS["cuda"], logits) + 2 * _FLOAT32 * min(SLICE_LOGITS["cuda"], logits)


def _gpu_token_bytes(shape: ModelShape) -> int:
    return 2 * shape.layers * _BFLOAT16 * shape.hidden + _layer_bytes(shape, _BFLOAT16)
