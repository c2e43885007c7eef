# pyright: basic
"""Merge a LoRA adapter of a checkpoint into full weights: a normal Hugging Face model that everything serves.

verl saves the weights of an adapter's model with PEFT's names: ``base_layer`` for a frozen matrix ``W`` and ``lora_A``,
``lora_B`` for the trained ones. The merged matrix is ``W + alpha / rank * B A`` (Hu et al. 2021, "LoRA: Low-Rank
Adaptation of Large Language Models", section 4.1), computed in float32. torch is imported only here, to merge.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.semconv.errors import JobError

_META: Final = "lora_train_meta.json"
_INDEX: Final = "model.safetensors.index.json"
_PREFIX: Final = "base_model.model."
_A: Final = ".lora_A.default.weight"
_B: Final = ".lora_B.default.weight"


class Adapter(NamedTuple):
    """The adapter of a checkpoint."""

    rank: int
    alpha: int


def read_adapter(folder: Path) -> Adapter | None:
    """Return the adapter whose shape verl noted beside the weights; None for a checkpoint of full weights."""
    path = folder / _META
    if not path.exists():
        return None
    meta = json.loads(path.read_text())
    return Adapter(rank=int(meta["r"]), alpha=int(meta["lora_alpha"]))


def merge_adapter(adapter: Adapter, weights: Path, target: Path, names: Collection[str]) -> None:
    """Write the merged weights, each file under its name in ``weights``.

    Args:
        adapter: Of the checkpoint.
        weights: Folder with the safetensors files of the checkpoint.
        target: An existing folder.
        names: The tensors of the base model; others, as a tied head that PEFT repeats, are left out. Empty: all.

    Raises:
        JobError: A tensor of the base is missing.
    """
    from safetensors import safe_open  # noqa: PLC0415
    from safetensors.torch import save_file  # noqa: PLC0415 - torch takes seconds

    weight_map: dict[str, str] = {}
    with ExitStack() as stack:
        files = {
            path.name: stack.enter_context(safe_open(path, framework="pt"))
            for path in sorted(weights.glob("*.safetensors"))
        }
        places = {name: file for file in files.values() for name in file.keys()}  # noqa: SIM118 - it is no dictionary
        for file_name, file in files.items():
            merged = dict(_merged(adapter, file, places, names))
            if merged:
                save_file(merged, target / file_name, metadata={"format": "pt"})
                weight_map |= dict.fromkeys(merged, file_name)
    if missing := sorted(set(names) - weight_map.keys()):
        raise JobError(f"{weights} lacks {len(missing)} tensors of the base model, the first is {missing[0]}.")
    if (weights / _INDEX).exists():
        (target / _INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1))


def _merged(adapter: Adapter, file: Any, places: dict[str, Any], names: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Return the tensors of one file by the base model's names."""
    for stored in file.keys():  # noqa: SIM118
        module, is_frozen, rest = stored.partition(".base_layer.")
        name = f"{module.removeprefix(_PREFIX)}.{rest}" if is_frozen else stored.removeprefix(_PREFIX)
        if stored.endswith((_A, _B)) or (names and name not in names):
            continue
        tensor = file.get_tensor(stored)
        if rest == "weight" and module + _A in places:
            low, high = (places[module + part].get_tensor(module + part).float() for part in (_A, _B))
            tensor = (tensor.float() + adapter.alpha / adapter.rank * (high @ low)).to(tensor.dtype)
        yield name, tensor
