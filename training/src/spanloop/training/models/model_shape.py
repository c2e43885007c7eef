"""Read the sizes of a transformer that its memory depends on, from its folder and without loading it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .files.tokenizer_files import read_json
from .files.weights import check_weights


class ModelShape(NamedTuple):
    """Sizes of a decoder."""

    parameters: int
    layers: int
    hidden: int
    key_value: int
    """Width of keys, and of values: key-value heads times head size."""
    intermediate: int
    vocabulary: int

    @property
    def layer_parameters(self) -> int:
        """Parameters of the matrices of one layer."""
        return self.hidden * (2 * self.hidden + 2 * self.key_value + 3 * self.intermediate)

    @property
    def other_parameters(self) -> int:
        """Parameters outside the layers: embeddings and head."""
        return max(0, self.parameters - self.layers * self.layer_parameters)

    def adapter_parameters(self, rank: int) -> int:
        """Parameters of two low-rank matrices for each projection: ``rank`` times the sum of its widths."""
        return self.layers * rank * (9 * self.hidden + 2 * self.key_value + 3 * self.intermediate)


def read_shape(folder: Path) -> ModelShape:
    """Read the shape of the Hugging Face model in ``folder``.

    Raises:
        JobError: The folder has no configuration or its weights are incomplete.
    """
    config = read_json(folder / "config.json")
    tensors = check_weights(folder).tensors
    shape = shape_of_config(config, sum(math.prod(tensor.shape) for tensor in tensors.values()))
    # weights that are not safetensors have no header to count
    counted = shape.layers * shape.layer_parameters + 2 * shape.vocabulary * shape.hidden
    return shape if shape.parameters else shape._replace(parameters=counted)


def shape_of_config(config: Mapping[str, Any], parameters: int) -> ModelShape:
    """Return the shape of a Hugging Face configuration.

    Args:
        config: The content of ``config.json``.
        parameters: Of the model.
    """
    text: Mapping[str, Any] = config.get("text_config") or config
    hidden, heads = int(text["hidden_size"]), int(text.get("num_attention_heads") or 1)
    head = int(text.get("head_dim") or hidden // heads)
    return ModelShape(
        parameters=parameters,
        layers=int(text["num_hidden_layers"]),
        hidden=hidden,
        key_value=int(text.get("num_key_value_heads") or heads) * head,
        intermediate=int(text.get("intermediate_size") or 4 * hidden),
        vocabulary=int(text["vocab_size"]),
    )
