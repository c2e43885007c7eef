"""Check that a folder's weights are complete, by the headers of its safetensors files; takes milliseconds.

A safetensors file consists of eight bytes with the header's length, a JSON header, and the tensors' bytes:
https://huggingface.co/docs/safetensors#format
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from spanloop.foundation.errors import JobError

_INDEX: Final = "model.safetensors.index.json"
_LENGTH_BYTES: Final = 8
_ADD_AGAIN: Final = "Get a complete copy of the model and add it again: spanloop models add."


class Tensor(BaseModel):
    """One entry of a safetensors header."""

    model_config = ConfigDict(extra="ignore")

    dtype: str
    """``F32``, ``BF16``, …"""
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]
    """Start and end (exclusive) in bytes, counted from the end of the header."""


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


_HEADER: Final = TypeAdapter(dict[str, Tensor])


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
    tensors = {name: tensor for shard in shards for name, tensor in _header(shard).items()}
    index = folder / _INDEX
    if index.exists():
        _check_index(index, {shard.name for shard in shards}, tensors)
    return Weights(tensors)


def _header(shard: Path) -> dict[str, Tensor]:
    size = shard.stat().st_size
    with shard.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
            raise _cut_short(shard, size, _LENGTH_BYTES + length)
        text = file.read(length)
    try:
        fields = json.loads(text)
        fields.pop("__metadata__", None)
        header = _HEADER.validate_python(fields)
    except (ValueError, AttributeError, ValidationError) as error:
        raise JobError(
            f"{shard} is not a safetensors file: its header cannot be read.", next_step=_ADD_AGAIN
        ) from error
    expected = _LENGTH_BYTES + length + max((tensor.data_offsets[1] for tensor in header.values()), default=0)
    if size < expected:
        raise _cut_short(shard, size, expected)
    return header


def _cut_short(shard: Path, size: int, expected: int) -> JobError:
    return JobError(
        f"{shard} is cut short: got {size} bytes, its header expects at least {expected}.", next_step=_ADD_AGAIN
    )


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
