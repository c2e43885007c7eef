# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# safetensors is only partly typed.
"""Check that a folder's weights are complete, by the headers of its safetensors files; takes milliseconds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open

from spanloop.foundation.errors import JobError

OUTPUT_LAYER: Final = "lm_head.weight"
INDEX_FILE: Final = "model.safetensors.index.json"
_ADD_AGAIN: Final = "Get a complete copy of the model and add it again: spanloop models add."


class Tensor(NamedTuple):
    """One entry of a safetensors header."""

    dtype: str
    """``F32``, ``BF16``, …"""
    shape: tuple[int, ...]


class _Index(BaseModel):
    model_config = ConfigDict(extra="ignore")

    weight_map: dict[str, str]


class Weights(NamedTuple):
    """The tensors of a model folder."""

    tensors: Mapping[str, Tensor]
    """Tensors by name; empty for weights in another format."""

    @property
    def dtypes(self) -> frozenset[str]:
        """The data types of all tensors."""
        return frozenset(tensor.dtype for tensor in self.tensors.values())

    @property
    def embedding_rows(self) -> int | None:
        """Rows of the input embeddings; None if no tensor has a known name."""
        for name, tensor in self.tensors.items():
            if name.endswith(("embed_tokens.weight", "wte.weight")) and tensor.shape:
                return tensor.shape[0]
        return None


def check_weights(folder: Path) -> Weights:
    """Read all headers and compare them with the file sizes.

    Raises:
        JobError: The configuration or weights are missing, or a file is missing, truncated or not safetensors.
    """
    if not (folder / "config.json").is_file():
        raise JobError(
            f"{folder} has no config.json, so it is not a Hugging Face model folder.",
            next_step="Pass the folder that contains the model's config.json, weights and tokenizer.",
        )
    shards = sorted(folder.glob("*.safetensors"))
    if not shards:
        if any(folder.glob("pytorch_model*.bin")):
            return Weights({})
        raise JobError(f"{folder} has no weights: expected *.safetensors.", next_step=_ADD_AGAIN)
    tensors = {name: tensor for shard in shards for name, tensor in read_header(shard).items()}
    index = folder / INDEX_FILE
    if index.exists():
        _check_index(index, {shard.name for shard in shards}, tensors)
    return Weights(tensors)


def read_header(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name, without their values.

    Raises:
        JobError: It is not a safetensors file, or its size is not that of its tensors.
    """
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
            return {name: Tensor(each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
    except SafetensorError as error:
        raise JobError(
            f"{path} ({path.stat().st_size} bytes) is cut short or is not a safetensors file: {error}.",
            next_step=_ADD_AGAIN,
        ) from error


def _check_index(index: Path, shards: set[str], tensors: Mapping[str, Tensor]) -> None:
    try:
        weight_map = _Index.model_validate_json(index.read_bytes()).weight_map
    except ValidationError as error:
        raise JobError(f"{index} cannot be read: expected a weight_map.", next_step=_ADD_AGAIN) from error
    if missing := sorted(set(weight_map.values()) - shards):
        raise JobError(f"{index.parent} lacks {', '.join(missing)}, which {index.name} lists.", next_step=_ADD_AGAIN)
    if missing := sorted(set(weight_map) - set(tensors)):
        raise JobError(
            f"{len(missing)} tensors that {index} lists are in no file, the first is {missing[0]}.",
            next_step=_ADD_AGAIN,
        )


def has_output_layer(folder: Path) -> bool:
    """Return whether the weights have an output layer of their own; not where a file cannot be read."""
    try:
        return any(OUTPUT_LAYER in read_header(shard) for shard in folder.glob("*.safetensors"))
    except JobError:
        return False
