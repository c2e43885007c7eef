# pyright: basic
"""Merge a LoRA adapter into full weights: a normal Hugging Face model that everything serves.

The merged matrix of a layer is ``W + B A`` (:mod:`.lora_adapter`), in float32, the precision of verl's checkpoints.
verl saves the weights of an adapter's model with PEFT's names, ``base_layer`` for a frozen matrix ``W``. torch is
imported only to merge.
"""

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from spanloop.foundation.errors import JobError

from .lora_adapter import CHECKPOINT_A, CHECKPOINT_B, PREFIX, Adapter

_INDEX: Final = "model.safetensors.index.json"


def merge_checkpoint(adapter: Adapter, weights: Path, target: Path, names: Collection[str]) -> None:
    """Write the merged weights of a checkpoint, each file under its name in ``weights``.

    Args:
        adapter: Of the checkpoint.
        weights: Folder with the safetensors files of the checkpoint.
        target: An existing folder.
        names: The tensors of the base model; others, as a tied head that PEFT repeats, are left out. Empty: all.

    Raises:
        JobError: A tensor of the base is missing.
    """

    def base_name(stored: str) -> str | None:
        if stored.endswith((CHECKPOINT_A, CHECKPOINT_B)):
            return None
        name = stored.removeprefix(PREFIX).replace(".base_layer.", ".")
        return name if not names or name in names else None

    written = _merge(adapter, weights, target, base_name)
    if missing := sorted(set(names) - written):
        raise JobError(f"{weights} lacks {len(missing)} tensors of the base model, the first is {missing[0]}.")


def merge_into_base(adapter: Adapter, base: Path, target: Path) -> None:
    """Write a copy of the model folder ``base`` with ``adapter`` merged into its weights; ``target`` exists.

    Raises:
        JobError: The adapter updates layers that the base does not have.
    """
    written = _merge(adapter, base, target, lambda name: name)
    if missing := sorted({f"{layer}.weight" for layer in adapter} - written):
        raise JobError(f"{base} lacks {len(missing)} layers of the adapter, the first is {missing[0]}.")
    for path in base.iterdir():
        if path.is_file() and not (target / path.name).exists():
            shutil.copy2(path, target / path.name)


def _merge(adapter: Adapter, weights: Path, target: Path, base_name: Callable[[str], str | None]) -> set[str]:
    """Write each safetensors file with the tensors that have a base's name; return those names."""
    from safetensors import safe_open  # noqa: PLC0415 - torch takes seconds
    from safetensors.torch import save_file  # noqa: PLC0415

    weight_map: dict[str, str] = {}
    for path in sorted(weights.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            names = {stored: base_name(stored) for stored in file.keys()}  # noqa: SIM118 - it is no dictionary
            merged = {name: _merged(adapter, name, file.get_tensor(stored)) for stored, name in names.items() if name}
        if merged:
            save_file(merged, target / path.name, metadata={"format": "pt"})
            weight_map |= dict.fromkeys(merged, path.name)
    if (weights / _INDEX).exists():
        (target / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1))
    return set(weight_map)


def _merged(adapter: Adapter, name: str, tensor: Any) -> Any:
    layer, _, kind = name.rpartition(".")
    update = adapter.get(layer) if kind == "weight" else None
    return tensor if update is None else tensor.float() + update.b @ update.a
