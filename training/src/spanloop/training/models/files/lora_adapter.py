# pyright: basic
"""Read and write LoRA adapters: those of verl's checkpoints, and adapter folders in PEFT's format.

The update of a layer is ``B A``, with ``A`` of shape (rank, inputs) and ``B`` of shape (outputs, rank), in float32. The
scale ``alpha / rank`` (Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1) is multiplied
into ``B``, so an adapter folder has ``lora_alpha = r``. Two updates of a layer are one whose rank is the sum of theirs:
``B1 A1 + B2 A2 = [B1 B2] [A1; A2]``. torch is imported only to read and write tensors.

PEFT's format: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from spanloop.foundation.errors import JobError

if TYPE_CHECKING:
    from torch import Tensor

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"
PREFIX: Final = "base_model.model."
"""PEFT puts it before the base's names."""
CHECKPOINT_A: Final = ".lora_A.default.weight"
CHECKPOINT_B: Final = ".lora_B.default.weight"
_CHECKPOINT_META: Final = "lora_train_meta.json"
_A: Final = ".lora_A.weight"
_B: Final = ".lora_B.weight"


class LowRank(NamedTuple):
    """The update of one layer."""

    a: "Tensor"
    b: "Tensor"
    """Scaled."""


Adapter: TypeAlias = Mapping[str, LowRank]
"""Updates by the base model's names of the layers, such as ``model.layers.0.self_attn.q_proj``."""


def read_checkpoint_adapter(weights: Path) -> Adapter | None:
    """Return the adapter of a checkpoint of verl; None for a checkpoint of full weights.

    Args:
        weights: The folder with the safetensors files; verl writes rank and scale into the folder around it.
    """
    try:
        meta = json.loads((weights.parent / _CHECKPOINT_META).read_text())
    except FileNotFoundError:
        return None
    return _read(weights, CHECKPOINT_A, CHECKPOINT_B, scale=float(meta["lora_alpha"]) / int(meta["r"]))


def read_adapter(folder: Path) -> Adapter:
    """Return the adapter in ``folder``.

    Raises:
        JobError: The folder is no adapter.
    """
    config = _config(folder)
    return _read(folder, _A, _B, scale=float(config["lora_alpha"]) / int(config["r"]))


def adapter_rank(folder: Path) -> int:
    """Return the rank of the adapter in ``folder``.

    Raises:
        JobError: The folder is no adapter.
    """
    return int(_config(folder)["r"])


def write_adapter(adapter: Adapter, base: str, target: Path) -> None:
    """Write ``adapter`` of the base ``name@version`` into the existing folder ``target``."""
    from safetensors.torch import save_file  # noqa: PLC0415 - torch takes seconds

    tensors = {f"{PREFIX}{layer}{_A}": update.a.contiguous() for layer, update in adapter.items()}
    tensors |= {f"{PREFIX}{layer}{_B}": update.b.contiguous() for layer, update in adapter.items()}
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    rank = next(iter(adapter.values())).a.shape[0]
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,
        "target_modules": sorted({layer.rpartition(".")[2] for layer in adapter}),
        "bias": "none",
        "inference_mode": True,
    }
    (target / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1))


def stack(first: Adapter, second: Adapter) -> Adapter:
    """Return one adapter that has the updates of both; where one lacks a layer, its part is zeros.

    All layers have the rank of both together, because an adapter folder has one rank.
    """
    import torch  # noqa: PLC0415

    ranks = [next(iter(adapter.values())).a.shape[0] for adapter in (first, second)]
    stacked: dict[str, LowRank] = {}
    for layer in sorted(first.keys() | second.keys()):
        updates = [adapter.get(layer) for adapter in (first, second)]
        known = next(update for update in updates if update is not None)
        parts = [
            update or LowRank(known.a.new_zeros(rank, known.a.shape[1]), known.b.new_zeros(known.b.shape[0], rank))
            for update, rank in zip(updates, ranks, strict=True)
        ]
        stacked[layer] = LowRank(torch.cat([part.a for part in parts]), torch.cat([part.b for part in parts], dim=1))
    return stacked


def _read(folder: Path, a: str, b: str, *, scale: float) -> Adapter:
    from safetensors import safe_open  # noqa: PLC0415

    halves: dict[str, dict[str, Any]] = {a: {}, b: {}}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dictionary
                for suffix, tensors in halves.items():
                    if name.endswith(suffix):
                        tensors[name.removeprefix(PREFIX).removesuffix(suffix)] = file.get_tensor(name).float()
    if not halves[a] or halves[a].keys() != halves[b].keys():
        raise JobError(f"{folder} has {len(halves[a])} matrices {a[1:]} and {len(halves[b])} {b[1:]}: expected pairs.")
    return {layer: LowRank(tensor, scale * halves[b][layer]) for layer, tensor in halves[a].items()}


def _config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / ADAPTER_CONFIG).read_text())
    except (OSError, ValueError) as error:
        raise JobError(f"{folder} is no adapter: cannot read its {ADAPTER_CONFIG}: {error}.") from error
    return config
