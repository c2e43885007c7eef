"""The base of a section of ``spanloop.toml``: frozen, and without a key that is not known."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo


class OptionName(NamedTuple):
    """Annotates a field with a command-line option of another name."""

    name: str


class Section(BaseModel):
    """One section."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def option(cls, field: str) -> str:
        """Return the command-line option of a field, such as ``--max-model-len``."""
        names = (each.name for each in cls.model_fields[field].metadata if isinstance(each, OptionName))
        return next(names, f"--{field.replace('_', '-')}")


class VariableSection(Section):
    """A section whose keys are variables of the environment, too."""

    @classmethod
    def variable(cls, field: str) -> str:
        """Return the environment variable of a field, such as ``SPANLOOP_PROMOTION_MARGIN``."""
        return f"{cls.variable_prefix()}{field}".upper()

    @classmethod
    def variable_prefix(cls) -> str:
        """Return the first characters of the section's variables."""
        return f"SPANLOOP_{cls.__name__}_".upper()


def _from_folder_of_file(path: Path, info: ValidationInfo) -> Path:
    context = cast("dict[str, Any] | None", info.context)
    return (context["folder"] / path.expanduser()).absolute() if context else path


FilePath = Annotated[Path, AfterValidator(_from_folder_of_file)]
"""A path that, where ``spanloop.toml`` has it, starts at the folder of that file."""
