"""The base of a section of ``spanloop.toml``: frozen, and without a key that is not known."""

from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo


class Section(BaseModel):
    """One section."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _from_folder_of_file(path: Path, info: ValidationInfo) -> Path:
    context = cast("dict[str, Any] | None", info.context)
    return (context["folder"] / path.expanduser()).absolute() if context else path


FilePath = Annotated[Path, AfterValidator(_from_folder_of_file)]
"""A path that, where ``spanloop.toml`` has it, starts at the folder of that file."""
